"""Pictures of a clip: the frames and the grid that a captioner sees, in InternVL's tiles of 448 x 448.

InternVL squeezes a picture to whole tiles, 256 tokens each, and adds a thumbnail to several. A frame squeezed to one
tile here, not cropped, costs 256 tokens on every server, whether or not it reads `max_dynamic_patch`; the grid of two
by two tiles costs 1,280.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.captions import jpeg_grid
from pipeline.captions.messages import Picture
from pipeline.video import clip_files

TILE_PIXELS = 448
FRAMES, GRID_FRAMES = 8, 4
PICTURES = (
    f"{FRAMES} frames and {GRID_FRAMES} of them in a grid, {TILE_PIXELS} px square, quality {jpeg_grid.QUALITY}, "
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
    frames = [jpeg_grid.encoded_square(frame_HWC) for frame_HWC in frames_THWC]
    corners = [frames[index] for index in spread(len(frames), GRID_FRAMES)]
    return ClipPictures(
        grid=Picture(jpeg_grid.joined(corners, TILE_PIXELS), tiles=GRID_FRAMES),
        frames=tuple(Picture(frame) for frame in frames),
    )


def shown_frames(frames: int) -> int:
    """Number of frames in the second question, and in its text, for a clip of `frames` frames."""
    return min(FRAMES, frames)


def spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` indices over `count` frames, each in the middle of an equal share; repeated if there are few."""
    return [(2 * position + 1) * count // (2 * wanted) for position in range(wanted)]


def _shown(frames: int) -> list[int]:
    return spread(frames, shown_frames(frames))
