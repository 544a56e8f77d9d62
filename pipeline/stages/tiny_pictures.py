"""Tiny pictures of 32x18 gray values, in which film grain, small movements and hold patterns vanish.

The detector of gradual changes, the second look at clips and the comparison of scenes work on them. Letters of the
shapes: P = 576 pixels.
"""

from __future__ import annotations

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
