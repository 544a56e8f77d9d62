"""Dissolve and fade detector: gradual transitions, which no comparison of neighbouring frames can find.

Model of a dissolve from picture A to picture B, as vectors of P gray values, with the share s_t of B in frame t:

    x_t = A + s_t (B - A) + r_t                     s rises from 0 (x = A) to 1 (x = B); r_t is the residual
    s_t = <x_t - A, B - A> / |B - A|^2              least squares
    m_t = mean_p |x_t - A - s_t (B - A)|            misfit, gray levels

In windows of several lengths that end at the newest frame, the first picture is taken as A and the last as B. A window
is a transition if all of these hold:

    max_t m_t <= largest_misfit * mean_p |B - A|            else a pan, a zoom or a moving character
    -LARGEST_RETURN <= s_(t+1) - s_t <= LARGEST_STEP        else, upwards, a hard cut: a perfect mix, but s jumps
    s < CLEAN next to A, s > 1 - CLEAN next to B            else part of the transition lies outside the window
    mean_p |B - A| >= least_change                          else nothing happens
    corr(A, B) <= SAME_SHAPES                               else a change of light: A and B show the same shapes
    mean_p [|B - A| > least_change / 2] >= CHANGED_SHARE    else a title that fades in

A fade is a dissolve from or to a blank picture (black, white or any colour); the last two conditions do not apply.

Pictures are 32x18 gray pixels (P = 576): film grain, small movements and hold patterns vanish at this size, and a
window costs a few multiplications of a 21 x 576 matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

TINY_WIDTH, TINY_HEIGHT = 32, 18
SHORTEST_WINDOW = 6
"""Frames. A shorter transition is a hard cut to the eye and to the detector of hard cuts."""
WINDOW_GROWTH = 1.5
"""Ratio of neighbouring window lengths. Small, because a window must hold the whole transition and little else."""
STEPS_PER_WINDOW = 20
"""Steps between the evenly spaced frames by which a long window is judged."""
CLEAN = 0.06
"""A frame with less than this share of the other scene is clean: movement alone gives as much."""
LARGEST_STEP = 0.42
"""Largest growth of the share between two frames examined: drawings on threes mix in jumps, a hard cut jumps by 1."""
LARGEST_RETURN = 0.08
"""Largest decrease of the share between two frames examined: characters move during a dissolve."""
CHANGED_SHARE = 0.5
"""Least share of the pixels that a dissolve changes; a title that fades in changes fewer."""
SAME_SHAPES = 0.5
"""Correlation above which two pictures show the same scene in another light, or under a title."""
BLANK_DEVIATION = 4.0
"""Standard deviation of gray values below which a picture is blank."""


@dataclass(frozen=True)
class Gradual:
    """A dissolve or fade; frames are counted from the first one added to the finder."""

    last_clean_before: int
    middle: int
    first_clean_after: int
    fade: bool


@dataclass(frozen=True)
class _Window:
    """Windows of one length: frames from first to last, frames between two examinations, offsets of examined frames."""

    length: int
    stride: int
    offsets: np.ndarray


def tiny_gray(gray_HW: np.ndarray) -> np.ndarray:
    """Return the input of the finder for a picture: 576 gray values, float32."""
    tiny_HW = cv2.resize(gray_HW, (TINY_WIDTH, TINY_HEIGHT), interpolation=cv2.INTER_AREA)
    return tiny_HW.astype(np.float32).ravel()


def mean_change(one_P: np.ndarray, other_P: np.ndarray) -> float:
    """Mean absolute difference of two pictures: mean_p |a_p - b_p|, in gray levels, 0 to 255."""
    return float(cv2.norm(one_P, other_P, cv2.NORM_L1)) / one_P.size


def shares_of_mix(pictures_NP: np.ndarray, largest_misfit: float) -> np.ndarray | None:
    """Return the share s_t of the last picture in each picture, or None if the pictures are not a mix of both ends.

    The N shares run from 0 to 1 by the model at the top of this file, with A the first and B the last picture.

    Args:
        pictures_NP: pictures in time order, one per row.
        largest_misfit: largest misfit m_t of a mix, as a share of the mean difference between both ends.
    """
    change_P = pictures_NP[-1] - pictures_NP[0]
    added_NP = pictures_NP - pictures_NP[0]
    shares_N = added_NP @ change_P / (change_P @ change_P)
    steps_N = np.diff(shares_N)
    if steps_N.max() > LARGEST_STEP or steps_N.min() < -LARGEST_RETURN:
        return None
    unexplained_N = np.abs(added_NP - np.outer(shares_N, change_P)).mean(axis=1)
    return None if unexplained_N.max() > largest_misfit * np.abs(change_P).mean() else shares_N


def same_shapes(one_P: np.ndarray, other_P: np.ndarray) -> bool:
    """Return true if two pictures differ in light and contrast only: their correlation exceeds `SAME_SHAPES`."""
    one_P, other_P = one_P - one_P.mean(), other_P - other_P.mean()
    return bool(one_P @ other_P > SAME_SHAPES * np.sqrt((one_P @ one_P) * (other_P @ other_P)))


def is_blank(picture_P: np.ndarray) -> bool:
    """Return true if the picture shows nothing: black, white or any even gray."""
    return bool(picture_P.std() < BLANK_DEVIATION)


class DissolveFinder:
    """Detector of dissolves and fades in a stream of tiny pictures; it buffers `longest` + 1 of them.

    Args:
        longest: frames in the longest window; a transition and a clean frame at both ends must fit into it.
        least_change: least mean difference between both ends, in gray levels.
        largest_misfit: as in `shares_of_mix`.
    """

    def __init__(self, longest: int, least_change: float, largest_misfit: float) -> None:
        self._least_change = least_change
        self._largest_misfit = largest_misfit
        self._windows = list(_windows(longest))
        # Ring buffer. Every picture is written twice, half the buffer apart, so any window is one contiguous slice.
        self._size = longest + 1
        self._pictures_RP = np.zeros((2 * self._size, TINY_WIDTH * TINY_HEIGHT), np.float32)
        self._count = 0

    def add(self, picture_P: np.ndarray) -> list[Gradual]:
        """Return the transitions in windows that end at this picture; most transitions are found several times."""
        slot = self._count % self._size
        self._pictures_RP[slot] = self._pictures_RP[slot + self._size] = picture_P
        self._count += 1
        return list(self._examine_windows())

    @property
    def delay(self) -> int:
        """Most frames between the end of a transition's window and its examination."""
        return max(window.stride for window in self._windows)

    def _examine_windows(self) -> Iterator[Gradual]:
        newest = self._count - 1
        for window in self._windows:
            if window.length <= newest and newest % window.stride == 0:
                found = self._judge(newest - window.length, window)
                if found:
                    yield found

    def _judge(self, start: int, window: _Window) -> Gradual | None:
        """Return the transition that fills the window of `length` + 1 pictures from `start`, if there is one."""
        slot = start % self._size
        window_WP = self._pictures_RP[slot : slot + window.length + 1]
        first_P, last_P, offsets = window_WP[0], window_WP[-1], window.offsets
        if mean_change(first_P, last_P) < self._least_change:
            return None
        shares_N = shares_of_mix(window_WP[offsets], self._largest_misfit)
        if shares_N is None:
            return None
        fade = is_blank(first_P) or is_blank(last_P)
        whole = shares_N[1] < CLEAN and shares_N[-2] > 1 - CLEAN
        if not whole or not (fade or self._is_other_scene(first_P, last_P)):
            return None
        before = int(np.flatnonzero(shares_N < CLEAN)[-1])
        after = int(np.flatnonzero(shares_N > 1 - CLEAN)[0])
        middle = int(np.ceil(np.interp(0.5, shares_N[before : after + 1], offsets[before : after + 1])))
        return Gradual(start + int(offsets[before]), start + middle, start + int(offsets[after]), fade)

    def _is_other_scene(self, first_P: np.ndarray, last_P: np.ndarray) -> bool:
        """Return true if most of the picture changed (not just a title), and not just its light."""
        changed_P = np.abs(last_P - first_P) > self._least_change / 2
        return bool(changed_P.mean() >= CHANGED_SHARE) and not same_shapes(first_P, last_P)


def _windows(longest: int) -> Iterator[_Window]:
    length = longest
    while length >= SHORTEST_WINDOW:
        offsets = np.linspace(0, length, min(length, STEPS_PER_WINDOW) + 1).round().astype(int)
        yield _Window(length, max(1, length // 8), offsets)
        length = round(length / WINDOW_GROWTH)
