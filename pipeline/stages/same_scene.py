"""Comparison of pictures that tells one scene in motion from two scenes.

Tiny pictures have 32x18 gray values, in which film grain, small movements and hold patterns vanish. The second look at
clips works on them. Letters of the shapes: P = 576 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np

TINY_WIDTH, TINY_HEIGHT = 32, 18
BLANK_DEVIATION = 4.0
"""Standard deviation of gray values below which a picture is blank."""
LAYOUT = 5
"""Pixels of a tiny picture. Structures larger than this are layout, which other places may share, and not detail."""
LIKE_LEVELS = 14
"""Largest difference of like grays, gray levels."""
EDGE_LEVELS = 40
"""Least gradient at an edge, as Sobel's filter gives it."""


def tiny_gray(gray_HW: np.ndarray) -> np.ndarray:
    """Return a tiny picture: 576 gray values, float32."""
    tiny_HW = cv2.resize(gray_HW, (TINY_WIDTH, TINY_HEIGHT), interpolation=cv2.INTER_AREA)
    return tiny_HW.astype(np.float32).ravel()


def mean_change(one_P: np.ndarray, other_P: np.ndarray) -> float:
    """Mean absolute difference of two results of `tiny_gray`: mean_p |a_p - b_p|, in gray levels."""
    return float(np.abs(one_P - other_P).sum()) / one_P.size


def likeness_of(one_P: np.ndarray, other_P: np.ndarray, changed_P: np.ndarray) -> float:
    """Correlation of the shapes in two pictures where they differ; near 1 in another light, or under a title.

    It compares the detail, without the broad layout of light and dark, at the changed pixels and their neighbours.
    """
    if not changed_P.any():
        return 1.0
    changed_HW = changed_P.reshape(TINY_HEIGHT, TINY_WIDTH).view(np.uint8)
    # a count of changed neighbours is a dilation in a sixth of the time
    counts_HW = cv2.boxFilter(changed_HW, -1, (3, 3), normalize=False, borderType=cv2.BORDER_CONSTANT)
    around_P = counts_HW.ravel() > 0
    one_R, other_R = (_detail(picture_P)[around_P] for picture_P in (one_P, other_P))
    one_R, other_R = one_R - one_R.mean(), other_R - other_R.mean()
    return float(one_R @ other_R / np.sqrt((one_R @ one_R) * (other_R @ other_R) + 1e-6))


def _detail(picture_P: np.ndarray) -> np.ndarray:
    picture_HW = picture_P.reshape(TINY_HEIGHT, TINY_WIDTH)
    return (picture_HW - cv2.blur(picture_HW, (LAYOUT, LAYOUT), borderType=cv2.BORDER_REPLICATE)).ravel()


def is_blank(picture_P: np.ndarray) -> bool:
    """Return true if the picture shows nothing: black, white or any even gray."""
    return bool(cv2.meanStdDev(picture_P)[1].item() < BLANK_DEVIATION)


def medians(values_NC: np.ndarray) -> np.ndarray:
    """Return the median of every row, as `np.median` does for finite values, in half its time."""
    sorted_NC, count = np.sort(values_NC, axis=1), values_NC.shape[1]
    medians_N: np.ndarray = (sorted_NC[:, (count - 1) // 2] + sorted_NC[:, count // 2]) / 2
    return medians_N


def undecided(shares_NC: np.ndarray) -> np.ndarray:
    """Return true for the pixels that show neither of both scenes: their share is neither near 0 nor near 1."""
    far_NC: np.ndarray = np.abs(np.abs(shares_NC - 0.5) - 0.5) > 0.25
    return far_NC


@dataclass(frozen=True)
class Followed:
    """Pixels of a gray picture followed through others to the last one."""

    is_lost_HW: np.ndarray
    """True for pixels that end in the picture on another gray."""
    edges: float
    """Share of the edges, as far as they stay in the picture, that end on an edge of like gray."""
    length: float
    """Distance that most pixels move, in picture widths."""


def follow(pictures: Sequence[np.ndarray]) -> Followed:
    """Follow the pixels of the first of some gray pictures by optical flow, from each picture to the next."""
    first_HW, last_HW = pictures[0], pictures[-1]
    start_2HW = _places(first_HW)
    x_HW, y_HW = start_2HW
    search = _coarse_search()
    for one_HW, next_HW in pairwise(pictures):
        flow_HWC = search.calc(one_HW, next_HW, None)  # type: ignore[call-overload] # no first guess
        step_HWC = cv2.remap(flow_HWC, x_HW, y_HW, cv2.INTER_LINEAR, None, cv2.BORDER_REPLICATE)
        x_HW, y_HW = x_HW + step_HWC[..., 0], y_HW + step_HWC[..., 1]
    inside_HW = _is_inside(x_HW, y_HW)
    alike_HW = cv2.absdiff(cv2.remap(last_HW, x_HW, y_HW, cv2.INTER_LINEAR), first_HW) <= LIKE_LEVELS
    edges_HW = _is_edge(first_HW) & inside_HW
    ends_HW = cv2.dilate(_is_edge(last_HW).astype(np.uint8), np.ones((3, 3), np.uint8))
    found_HW = edges_HW & alike_HW & (cv2.remap(ends_HW, x_HW, y_HW, cv2.INTER_NEAREST) > 0)
    return Followed(
        is_lost_HW=inside_HW & ~alike_HW,
        edges=float(found_HW.sum() / max(edges_HW.sum(), 1)),
        length=float(np.median(cv2.magnitude(x_HW - start_2HW[0], y_HW - start_2HW[1])) / first_HW.shape[1]),
    )


def _places(picture: np.ndarray) -> np.ndarray:
    """Return the column and the row of every pixel."""
    height, width = picture.shape[:2]
    places_2HW: np.ndarray = np.mgrid[:height, :width][::-1].astype(np.float32)
    return places_2HW


def _is_inside(x_HW: np.ndarray, y_HW: np.ndarray) -> np.ndarray:
    height, width = x_HW.shape
    inside_HW: np.ndarray = (x_HW >= 0) & (x_HW <= width - 1) & (y_HW >= 0) & (y_HW <= height - 1)
    return inside_HW


def _is_edge(gray_HW: np.ndarray) -> np.ndarray:
    across_HW, down_HW = (cv2.Sobel(gray_HW, cv2.CV_32F, *order) for order in ((1, 0), (0, 1)))
    edge_HW: np.ndarray = cv2.magnitude(across_HW, down_HW) > EDGE_LEVELS
    return edge_HW


def _coarse_search() -> cv2.DISOpticalFlow:
    """New search, since clips are measured in threads, without the refinement, which takes most of the time."""
    search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    search.setVariationalRefinementIterations(0)
    return search
