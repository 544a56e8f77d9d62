"""Pictures of a clip: the frames and the grid that a captioner sees, sized for InternVL.

InternVL cuts a picture into tiles of 448 x 448 at 256 tokens a tile: one tile per frame, six for the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.captions.chat_client import Picture
from pipeline.video.clip_files import read_clip

Picture_HWC = npt.NDArray[np.uint8]

FRAMES, GRID_FRAMES = 8, 4
_FRAME_WIDTH_PIXELS = 672  # a 3:2 clip is then 448 high, and its grid exactly three by two tiles
_GRID_TILES, _FRAME_TILES = 6, 1
_JPEG_QUALITY = 90
PICTURES = f"{FRAMES} and {GRID_FRAMES} frames, {_FRAME_WIDTH_PIXELS} px, quality {_JPEG_QUALITY}"
"""The pictures as an ingredient of every reply."""


@dataclass(frozen=True)
class ClipPictures:
    """Pictures of a clip for both questions."""

    grid: Picture
    frames: tuple[Picture, ...]


def view_clip(path: Path, *, tiles: bool) -> ClipPictures:
    """Read the grid for the first question and the frames for the second.

    Raises:
        RecordError: the clip file cannot be read.
    """
    frames_THWC = read_clip(path)
    shown = shown_frames(len(frames_THWC))
    pictures = [_scaled(frames_THWC[index]) for index in spread(len(frames_THWC), shown)]
    corners = [_scaled(frames_THWC[index]) for index in spread(len(frames_THWC), GRID_FRAMES)]
    grid_HWC = np.vstack([np.hstack(corners[:2]), np.hstack(corners[2:])])
    return ClipPictures(
        grid=Picture(_jpeg(grid_HWC), _GRID_TILES if tiles else None),
        frames=tuple(Picture(_jpeg(picture), _FRAME_TILES if tiles else None) for picture in pictures),
    )


def shown_frames(frames: int) -> int:
    """Number of frames in the second question, and in its text, for a clip of `frames` frames."""
    return min(FRAMES, frames)


def spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` indices over `count` frames, each in the middle of an equal share; repeated if there are few."""
    return [(2 * position + 1) * count // (2 * wanted) for position in range(wanted)]


def _scaled(picture_HWC: Picture_HWC) -> Picture_HWC:
    """Scale a picture down to the width of the model's input; smaller pictures are unchanged."""
    height, width = picture_HWC.shape[:2]
    if width <= _FRAME_WIDTH_PIXELS:
        return picture_HWC
    size = (_FRAME_WIDTH_PIXELS, round(height * _FRAME_WIDTH_PIXELS / width))
    return np.asarray(cv2.resize(picture_HWC, size, interpolation=cv2.INTER_AREA), np.uint8)


def _jpeg(picture_HWC: Picture_HWC) -> bytes:
    _, content = cv2.imencode(".jpg", picture_HWC, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return content.tobytes()
