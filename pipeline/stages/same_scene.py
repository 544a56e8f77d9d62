"""Comparison of pictures that tells one scene in motion, in new light or under a title from two scenes.

Tiny pictures have 32x18 gray values, in which film grain, small movements and hold patterns vanish. The detector of
gradual changes and the second look at clips work on them. Letters of the shapes: P = 576 pixels.

In whole pictures, a pixel is found again if the optical flow leads it to a pixel of like colour, and the flow back
leads to the pixel itself. In one scene that holds for most pixels, in spite of the motion of camera and figures; for a
tenth even among leaping figures. Flow from one scene to another leads anywhere, and not back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import cv2
import numpy as np

from pipeline.stages import scene_thresholds as limits

TINY_WIDTH, TINY_HEIGHT = 32, 18


def tiny_gray(gray_HW: np.ndarray) -> np.ndarray:
    """Return the input of the finder for a picture: 576 gray values, float32."""
    tiny_HW = cv2.resize(gray_HW, (TINY_WIDTH, TINY_HEIGHT), interpolation=cv2.INTER_AREA)
    return tiny_HW.astype(np.float32).ravel()


def mean_change(one_P: np.ndarray, other_P: np.ndarray) -> float:
    """Mean absolute difference of two results of `tiny_gray`: mean_p |a_p - b_p|, in gray levels."""
    return float(np.abs(one_P - other_P).sum()) / one_P.size


def share_of(picture_P: np.ndarray, old_P: np.ndarray, new_P: np.ndarray, least_change: float) -> float:
    """Return the share of the new picture in a mix of an old and a new one; NaN if the two hardly differ.

    The median over the pixels that differ by more than `least_change` gray levels.
    """
    changed_P = np.abs(new_P - old_P) > least_change
    if np.count_nonzero(changed_P) < limits.LEAST_CHANGED * changed_P.size:
        return np.nan
    return float(np.median((picture_P - old_P)[changed_P] / (new_P - old_P)[changed_P]))


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
    return (picture_HW - cv2.blur(picture_HW, (limits.LAYOUT, limits.LAYOUT), borderType=cv2.BORDER_REPLICATE)).ravel()


def is_blank(picture_P: np.ndarray) -> bool:
    """Return true if the picture shows nothing: black, white or any even gray."""
    return bool(cv2.meanStdDev(picture_P)[1].item() < limits.BLANK_DEVIATION)


def light_of(old_P: np.ndarray, new_P: np.ndarray) -> float:
    """Return the factor of the least change for two pictures, 1/2 to 1: differences are smaller in the dark."""
    return min(max(float(old_P.mean()), float(new_P.mean()), limits.DARKEST) / limits.BRIGHT, 1.0)


def medians(values_NC: np.ndarray) -> np.ndarray:
    """Return the median of every row, as `np.median` does for finite values, in half its time."""
    sorted_NC, count = np.sort(values_NC, axis=1), values_NC.shape[1]
    medians_N: np.ndarray = (sorted_NC[:, (count - 1) // 2] + sorted_NC[:, count // 2]) / 2
    return medians_N


@dataclass(frozen=True)
class Followed:
    """Pixels of a gray picture followed through others to the last one."""

    is_lost_HW: np.ndarray
    """True for pixels that end in the picture on another gray."""
    edges: float
    """Share of the edges, as far as they stay in the picture, that end on an edge of like gray."""
    length: float
    """Distance that most pixels move, in picture widths."""


def is_back(old_P: np.ndarray, new_P: np.ndarray, change: float) -> bool:
    """Return true if a tiny picture equals an old one again, after a change by `change` gray levels."""
    return mean_change(old_P, new_P) < min(limits.SAME_LEVELS, limits.SAME_SHARE * change)


def is_relit(old_P: np.ndarray, new_P: np.ndarray) -> bool:
    """Return true if two tiny pictures show one place in different light."""
    return likeness_of(old_P, new_P, np.abs(new_P - old_P) > limits.LIT_LEVELS) > limits.SAME_PLACE


def is_title(old_HW: np.ndarray, new_HW: np.ndarray) -> bool:
    """Return true if thin lines, or lines of one colour, appear or vanish between two gray pictures: letters."""
    changed_HW = cv2.absdiff(old_HW, new_HW) > limits.LETTER_LEVELS
    inner_HW = cv2.erode(changed_HW.astype(np.uint8), np.ones((limits.LINE, limits.LINE), np.uint8))
    uniform = max(_share_of_one_colour(gray_HW[changed_HW]) for gray_HW in (old_HW, new_HW))
    return bool(inner_HW.sum() < max(limits.INNER_SHARE, limits.UNIFORM_SHARE * uniform**2) * changed_HW.sum())


def found_again(one_HWC: np.ndarray, other_HWC: np.ndarray) -> float:
    """Return the share of the pixels of a BGR picture found again in another; the smaller one of both directions."""
    there_HWC, back_HWC = _flow(one_HWC, other_HWC), _flow(other_HWC, one_HWC)
    return min(
        _share_found(one_HWC, other_HWC, there_HWC, back_HWC), _share_found(other_HWC, one_HWC, back_HWC, there_HWC)
    )


def way_of(pictures: Sequence[np.ndarray]) -> float:
    """Return the distance that most pixels move through a sequence of pictures, in picture widths."""
    ways = [float(np.median(_length(_flow(one_HWC, next_HWC)))) for one_HWC, next_HWC in pairwise(pictures)]
    return sum(ways) / float(pictures[0].shape[1])


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
    alike_HW = cv2.absdiff(cv2.remap(last_HW, x_HW, y_HW, cv2.INTER_LINEAR), first_HW) <= limits.LIKE_LEVELS
    edges_HW = _is_edge(first_HW) & inside_HW
    ends_HW = cv2.dilate(_is_edge(last_HW).astype(np.uint8), np.ones((3, 3), np.uint8))
    found_HW = edges_HW & alike_HW & (cv2.remap(ends_HW, x_HW, y_HW, cv2.INTER_NEAREST) > 0)
    return Followed(
        is_lost_HW=inside_HW & ~alike_HW,
        edges=float(found_HW.sum() / max(edges_HW.sum(), 1)),
        length=float(np.median(cv2.magnitude(x_HW - start_2HW[0], y_HW - start_2HW[1])) / first_HW.shape[1]),
    )


def _share_found(one_HWC: np.ndarray, other_HWC: np.ndarray, there_HWC: np.ndarray, back_HWC: np.ndarray) -> float:
    x_HW, y_HW = _places(one_HWC) + there_HWC.transpose(2, 0, 1)
    error_HWC = there_HWC + cv2.remap(back_HWC, x_HW, y_HW, cv2.INTER_LINEAR)
    returned_HW = _length(error_HWC) < limits.RETURN_PIXELS
    alike_HW = cv2.absdiff(cv2.remap(other_HWC, x_HW, y_HW, cv2.INTER_LINEAR), one_HWC).max(axis=2) < limits.LIKE_LEVELS
    return float((_is_inside(x_HW, y_HW) & returned_HW & alike_HW).mean())


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
    edge_HW: np.ndarray = cv2.magnitude(across_HW, down_HW) > limits.EDGE_LEVELS
    return edge_HW


def _flow(one_HWC: np.ndarray, other_HWC: np.ndarray) -> np.ndarray:
    one_HW, other_HW = (cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2GRAY) for picture_HWC in (one_HWC, other_HWC))
    found_HWC: np.ndarray = _search().calc(one_HW, other_HW, None)  # type: ignore[call-overload] # no first guess
    return found_HWC


def _length(vectors_HWC: np.ndarray) -> np.ndarray:
    return cv2.magnitude(*cv2.split(vectors_HWC))


@cache
def _search() -> cv2.DISOpticalFlow:
    return cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)


def _coarse_search() -> cv2.DISOpticalFlow:
    """New search, since clips are measured in threads, without the refinement, which takes most of the time."""
    search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    search.setVariationalRefinementIterations(0)
    return search


def _share_of_one_colour(levels: np.ndarray) -> float:
    """Return the share of pixels within the most common 16 of 256 gray levels; 0 of no pixels."""
    counts = np.histogram(levels, bins=32, range=(0, 256))[0]
    return float((counts[:-1] + counts[1:]).max() / max(levels.size, 1))
