"""Pictures of a clip: the frames and the grid that a captioner sees, in InternVL's tiles of 448 x 448.

InternVL squeezes a picture to whole tiles, 256 tokens each, and adds a thumbnail to several. A frame squeezed to one
tile here, not cropped, costs 256 tokens on every server, whether or not it reads `max_dynamic_patch`; the grid of two
by two tiles costs 1,280.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from pipeline.captions.messages import Picture
from pipeline.video import clip_files
from pipeline.video.containers import Picture as Picture_HWC

TILE_PIXELS = 448
FRAMES, GRID_FRAMES = 8, 4
_JPEG_QUALITY = 90
PICTURES = (
    f"{FRAMES} frames and {GRID_FRAMES} of them in a grid, {TILE_PIXELS} px square, quality {_JPEG_QUALITY}, "
    "labelled, before the text"
)
"""The pictures as an ingredient of every reply."""


@dataclass(frozen=True)
class ClipPictures:
    """Pictures of a clip for both questions."""

    grid: Picture
    frames: tuple[Picture, ...]


def view_clip(path: Path) -> ClipPictures:
    """Read the grid for the first question and the frames for the second.

    Raises:
        RecordError: the clip file cannot be read.
    """
    frames_THWC = clip_files.read_frames(path, _shown, TILE_PIXELS, TILE_PIXELS)
    corners = [frames_THWC[index] for index in spread(len(frames_THWC), GRID_FRAMES)]
    grid_HWC = np.vstack([np.hstack(corners[:2]), np.hstack(corners[2:])])
    return ClipPictures(
        grid=Picture(_jpeg(grid_HWC), tiles=GRID_FRAMES),
        frames=tuple(Picture(_jpeg(frame_HWC)) for frame_HWC in frames_THWC),
    )


def shown_frames(frames: int) -> int:
    """Number of frames in the second question, and in its text, for a clip of `frames` frames."""
    return min(FRAMES, frames)


def spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` indices over `count` frames, each in the middle of an equal share; repeated if there are few."""
    return [(2 * position + 1) * count // (2 * wanted) for position in range(wanted)]


def _shown(frames: int) -> list[int]:
    return spread(frames, shown_frames(frames))


def _jpeg(picture_HWC: Picture_HWC) -> bytes:
    _, content = cv2.imencode(".jpg", picture_HWC, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return content.tobytes()
