"""Looks of one clip without its overlays: light, contrast, stillness, likeness to two scenes, quality, frame hashes.

Everything but quality is measured on small pictures (180x120), which costs a fraction of reading the clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.measurements import Bars, Looks
from pipeline.stages.duplicates import frame_hash
from pipeline.stages.overlays.borders import bars_of
from pipeline.stages.picture_quality import measure_quality
from pipeline.stages.two_groups import second_look, small_gray
from pipeline.video.clip_files import read_clip_gray, read_clip_in_part
from pipeline.video.containers import Picture

DARK_LUMA = 24
STILL_LUMA = 3.5
STILL_WINDOW = 3
"""A step is still if the mean luma changes by less than this in every window of 3x3 pixels of the small picture. We
measured clips of 720x480 at crf 17 and 23. Coding changes held drawings by at most 2.0, and by 3.0 with film grain of
sigma 5. A soft background that pans by half a pixel changes by 3.9 or more. A mouth of 7x4 pixels that opens by two
pixels changes by 4.8. The windows overlap, since motion on the border of two cells might change neither enough."""

BLACK_LUMA = 24
"""Luma below which bars are black."""


def read_looked_at(path: Path, choose: Callable[[int], Sequence[int]] | None) -> tuple[Picture, Picture | None]:
    """Return all frames of a clip in gray, and the chosen ones in colour.

    The text detector makes more mistakes on gray pictures. For all else, gray is enough and cheaper.
    """
    return (read_clip_gray(path), None) if choose is None else read_clip_in_part(path, choose)


def measure_looks(clip_id: str, fps: Fraction, frames_THW: NDArray[np.uint8]) -> Looks:
    """Measure one clip from the full-range luma of its frames, without the overlays of its film."""
    small_THW = small_gray(frames_THW)
    return Looks(
        clip_id=clip_id,
        light=float(small_THW.mean()),
        contrast=float(small_THW.std(axis=(1, 2)).mean()),
        dark_share=float((small_THW < DARK_LUMA).mean()),
        still_share=still_share(small_THW),
        text_share=None,
        text_lines=None,
        hashes=tuple(frame_hash(small_HW) for small_HW in small_THW),
        two_groups=second_look(small_THW, fps),
        **vars(measure_quality(frames_THW)),
        bars=Bars(**bars_of(frames_THW, BLACK_LUMA)._asdict()),
    )


def still_share(small_THW: NDArray[np.uint8]) -> float:
    """Share of steps between consecutive small pictures in which no window changes visibly; 1 for one picture."""
    steps_THW = np.diff(small_THW.astype(np.float32), axis=0)
    return float(np.mean([_most_change(step_HW) < STILL_LUMA for step_HW in steps_THW])) if len(steps_THW) else 1.0


def _most_change(step_HW: NDArray[np.float32]) -> float:
    # windows across the border would count some pixels, and their noise, twice
    margin = STILL_WINDOW // 2
    means_HW = cv2.blur(step_HW, (STILL_WINDOW, STILL_WINDOW))[margin:-margin, margin:-margin]
    return float(np.abs(means_HW).max())
