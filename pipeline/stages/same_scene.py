"""Comparison of two pictures: one scene that moves, flashes, is relit or gets a title, or two scenes.

A pixel is found again in another picture if the optical flow leads it to a pixel of like colour, and the flow back from
there leads to the pixel itself. Between pictures of one scene that holds for most pixels, in spite of the motion of
camera and figures; for a tenth even among leaping figures. Flow from one scene to another leads anywhere, and not back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import cv2
import numpy as np

from pipeline.stages.gradual import likeness_of, mean_change

SAME_SHARE, SAME_LEVELS = 0.3, 15
"""A picture has returned after a flash if it differs by less than this share of the flash and by fewer than this many
gray levels. At cuts the mean change was 23 levels or more; by movement in a quarter of a second, 15 in one case of
ten."""
LIT_LEVELS, SAME_PLACE = 8, 0.95
"""Gray levels by which light changes a pixel, and the least likeness of two pictures of one place in different
light."""
LETTER_LEVELS, LINE = 10, 5
"""Gray levels by which letters differ from their background, and the side in pixels of a square wider than their
lines."""
INNER_SHARE, UNIFORM_SHARE = 0.12, 0.6
"""A change is a title if less of it than this share remains after erosion by such a square. Of a change to one colour
more may remain, as of bold letters: figures are not of one colour."""
LIKE_LEVELS = 14
"""Largest difference of like colours in any channel, gray levels."""
RETURN_PIXELS = 1.5
"""Largest distance of a pixel from the place to which the flow there and back leads it."""


def is_back(old_P: np.ndarray, new_P: np.ndarray, change: float) -> bool:
    """Return true if a tiny picture equals an old one again, after a change by `change` gray levels."""
    return mean_change(old_P, new_P) < min(SAME_LEVELS, SAME_SHARE * change)


def is_relit(old_P: np.ndarray, new_P: np.ndarray) -> bool:
    """Return true if two tiny pictures show one place in different light."""
    return likeness_of(old_P, new_P, np.abs(new_P - old_P) > LIT_LEVELS) > SAME_PLACE


def is_title(old_HW: np.ndarray, new_HW: np.ndarray) -> bool:
    """Return true if thin lines, or lines of one colour, appear or vanish between two gray pictures: letters."""
    changed_HW = cv2.absdiff(old_HW, new_HW) > LETTER_LEVELS
    inner_HW = cv2.erode(changed_HW.astype(np.uint8), np.ones((LINE, LINE), np.uint8))
    uniform = max(_share_of_one_colour(gray_HW[changed_HW]) for gray_HW in (old_HW, new_HW))
    return bool(inner_HW.sum() < max(INNER_SHARE, UNIFORM_SHARE * uniform**2) * changed_HW.sum())


def found_again(one_HWC: np.ndarray, other_HWC: np.ndarray) -> float:
    """Return the share of the pixels of a BGR picture found again in another; the smaller one of both directions."""
    there_HWC, back_HWC = _flow(one_HWC, other_HWC), _flow(other_HWC, one_HWC)
    return min(
        _share_found(one_HWC, other_HWC, there_HWC, back_HWC), _share_found(other_HWC, one_HWC, back_HWC, there_HWC)
    )


def way_of(pictures: Sequence[np.ndarray]) -> float:
    """Return the length of the way on which most pixels move through a sequence of pictures, in picture widths."""
    ways = [float(np.median(_length(_flow(one_HWC, next_HWC)))) for one_HWC, next_HWC in pairwise(pictures)]
    return sum(ways) / float(pictures[0].shape[1])


def _share_found(one_HWC: np.ndarray, other_HWC: np.ndarray, there_HWC: np.ndarray, back_HWC: np.ndarray) -> float:
    height, width = one_HWC.shape[:2]
    y_HW, x_HW = np.mgrid[:height, :width].astype(np.float32) + there_HWC[..., ::-1].transpose(2, 0, 1)
    inside_HW = (x_HW >= 0) & (x_HW <= width - 1) & (y_HW >= 0) & (y_HW <= height - 1)
    error_HWC = there_HWC + cv2.remap(back_HWC, x_HW, y_HW, cv2.INTER_LINEAR)
    returned_HW = _length(error_HWC) < RETURN_PIXELS
    alike_HW = cv2.absdiff(cv2.remap(other_HWC, x_HW, y_HW, cv2.INTER_LINEAR), one_HWC).max(axis=2) < LIKE_LEVELS
    return float((inside_HW & returned_HW & alike_HW).mean())


def _flow(one_HWC: np.ndarray, other_HWC: np.ndarray) -> np.ndarray:
    one_HW, other_HW = (cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2GRAY) for picture_HWC in (one_HWC, other_HWC))
    found_HWC: np.ndarray = _search().calc(one_HW, other_HW, None)  # type: ignore[call-overload] # no first guess
    return found_HWC


def _length(vectors_HWC: np.ndarray) -> np.ndarray:
    return cv2.magnitude(*cv2.split(vectors_HWC))


@cache
def _search() -> cv2.DISOpticalFlow:
    return cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)


def _share_of_one_colour(levels: np.ndarray) -> float:
    """Return the share of pixels within the most common 16 of 256 gray levels; 0 of no pixels."""
    counts = np.histogram(levels, bins=32, range=(0, 256))[0]
    return float((counts[:-1] + counts[1:]).max() / max(levels.size, 1))
