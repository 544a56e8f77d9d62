"""Pictures of a clip: the grid shows the same pixels as one that is encoded as a whole."""

from __future__ import annotations

import io
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from pipeline.captions import jpeg_grid
from pipeline.captions.pictures import PICTURES, TILE_PIXELS, shown_frames, spread, view_clip
from pipeline.video.clip_files import read_frames, write_clip
from pipeline.video.containers import Picture
from tests.support.media.films import paint_pictures

Read = Callable[[bytes], Picture]


def by_opencv(content: bytes) -> Picture:
    decoded = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    return np.asarray(decoded, np.uint8)


def by_pillow(content: bytes) -> Picture:
    with Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture.convert("RGB"), np.uint8)


def encoded_whole(frames_THWC: Picture) -> bytes:
    above, below = (np.hstack(list(frames_THWC[pair])) for pair in (slice(0, 2), slice(2, 4)))
    return cv2.imencode(".jpg", np.vstack([above, below]), [cv2.IMWRITE_JPEG_QUALITY, jpeg_grid.QUALITY])[1].tobytes()


@pytest.mark.parametrize("frames", [2, 4, 16, 17])
@pytest.mark.parametrize("read", [by_opencv, by_pillow])
def test_the_grid_is_the_one_encoded_as_a_whole(tmp_path: Path, frames: int, read: Read) -> None:
    path = tmp_path / "clip.mp4"
    write_clip(path, list(paint_pictures(frames, (192, 128))), Fraction(8), 17)

    views = view_clip(path)

    shown = spread(frames, shown_frames(frames))
    assert len(views.frames) == len(shown)
    corners = [shown[index] for index in spread(len(shown), 4)]
    frames_THWC = read_frames(path, lambda _: corners, TILE_PIXELS, TILE_PIXELS)
    assert np.array_equal(read(views.grid.jpeg), read(encoded_whole(frames_THWC)))


def test_stored_replies_keep_their_pictures() -> None:
    assert PICTURES == "8 frames and 4 of them in a grid, 448 px square, quality 90, labelled, before the text"
