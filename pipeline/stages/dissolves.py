"""Dissolves and fades: transitions that no comparison of neighbouring frames sees, found by what they are made of.

While scene A dissolves into scene B every frame is a mix of the two: A + share * (B - A), the share rising from 0
to 1. So the finder takes windows of several lengths that end at the newest frame, lets the window's first picture be
A and its last B, computes the share of every frame between by least squares, and measures what the mix leaves
unexplained. A pan, a zoom or a moving character leaves much: its frames are no mix of the first and the last. A hard
cut is explained perfectly, but its share jumps. A change of light is explained too, but A and B then show the same
shapes: their correlation tells. A fade is a dissolve from or to a blank picture, black, white or any colour.

It works on tiny gray pictures because film grain, small movements and hold patterns vanish there, and one window
costs a few multiplications of a 21 x 576 matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

TINY_WIDTH, TINY_HEIGHT = 32, 18
SHORTEST_WINDOW = 6
"""Frames; what is over sooner is a hard cut to the eye and to the detector of hard cuts."""
WINDOW_GROWTH = 1.5
"""A window must hold the whole transition and little else, so the next longer one is not much longer."""
LOOKS_PER_WINDOW = 20
"""A long window is judged by so many of its frames, evenly spaced."""
CLEAN = 0.06
"""A frame with less than this share of the other scene is clean: below it, movement looks the same."""
LARGEST_STEP = 0.42
"""The share may grow by this much from one look to the next; drawings on threes mix in leaps, hard cuts leap by 1."""
LARGEST_RETURN = 0.08
"""The share may shrink by this much: characters move during a dissolve."""
CHANGED_SHARE = 0.5
"""A dissolve changes at least this share of the picture; a title that fades in changes less."""
SAME_SHAPES = 0.5
"""Two pictures that correlate more than this show the same scene in another light, or under a title."""
BLANK_DEVIATION = 4.0
"""A picture whose gray values deviate less than this is blank."""


@dataclass(frozen=True)
class Gradual:
    """A dissolve or fade; frames count from the first one that the finder was given."""

    last_clean_before: int
    middle: int
    first_clean_after: int
    fade: bool


@dataclass(frozen=True)
class _Window:
    """Windows of one length: frames from first to last, frames between two looks at them, pictures looked at."""

    length: int
    stride: int
    looks: np.ndarray


def tiny_gray(gray_HW: np.ndarray) -> np.ndarray:
    """The picture as the finder wants it: 576 gray values, float32."""
    tiny_HW = cv2.resize(gray_HW, (TINY_WIDTH, TINY_HEIGHT), interpolation=cv2.INTER_AREA)
    return tiny_HW.astype(np.float32).ravel()


def mean_change(one_P: np.ndarray, other_P: np.ndarray) -> float:
    """Mean absolute difference of two pictures in gray levels, 0 to 255."""
    return float(cv2.norm(one_P, other_P, cv2.NORM_L1)) / one_P.size


def shares_of_mix(pictures_NP: np.ndarray, largest_misfit: float) -> np.ndarray | None:
    """How much of the last picture each picture holds (N values from 0 to 1), or None if they are no mix of both ends.

    Args:
        pictures_NP: pictures in time order, one in each row.
        largest_misfit: what a mix may leave unexplained, as a share of the difference between both ends.
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
    """Whether two pictures differ in light and contrast only."""
    one_P, other_P = one_P - one_P.mean(), other_P - other_P.mean()
    return bool(one_P @ other_P > SAME_SHAPES * np.sqrt((one_P @ one_P) * (other_P @ other_P)))


def is_blank(picture_P: np.ndarray) -> bool:
    """Whether nothing is to be seen: black, white or any even gray."""
    return bool(picture_P.std() < BLANK_DEVIATION)


class DissolveFinder:
    """Finds dissolves and fades in a stream of tiny pictures; remembers `longest` + 1 of them.

    Args:
        longest: frames in the longest window. A transition must fit in with a clean frame at both ends.
        least_change: mean gray levels by which both ends must differ.
        largest_misfit: see `shares_of_mix`.
    """

    def __init__(self, longest: int, least_change: float, largest_misfit: float) -> None:
        self._least_change = least_change
        self._largest_misfit = largest_misfit
        self._windows = list(_windows(longest))
        # Every picture is written twice, half the buffer apart, so that any window is one contiguous slice.
        self._size = longest + 1
        self._pictures_RP = np.zeros((2 * self._size, TINY_WIDTH * TINY_HEIGHT), np.float32)
        self._count = 0

    def add(self, picture_P: np.ndarray) -> list[Gradual]:
        """What is found in the windows that end at this picture; the same transition is usually found several times."""
        slot = self._count % self._size
        self._pictures_RP[slot] = self._pictures_RP[slot + self._size] = picture_P
        self._count += 1
        return list(self._look())

    @property
    def delay(self) -> int:
        """The most frames by which a look at a window comes after its end."""
        return max(window.stride for window in self._windows)

    def _look(self) -> Iterator[Gradual]:
        newest = self._count - 1
        for window in self._windows:
            if window.length <= newest and newest % window.stride == 0:
                found = self._judge(newest - window.length, window)
                if found:
                    yield found

    def _judge(self, start: int, window: _Window) -> Gradual | None:
        """The transition that fills the window of `length` + 1 pictures from `start`, if there is one."""
        slot = start % self._size
        window_WP = self._pictures_RP[slot : slot + window.length + 1]
        first_P, last_P, looks = window_WP[0], window_WP[-1], window.looks
        if mean_change(first_P, last_P) < self._least_change:
            return None
        shares_N = shares_of_mix(window_WP[looks], self._largest_misfit)
        if shares_N is None:
            return None
        fade = is_blank(first_P) or is_blank(last_P)
        whole = shares_N[1] < CLEAN and shares_N[-2] > 1 - CLEAN
        if not whole or not (fade or self._is_other_scene(first_P, last_P)):
            return None
        before = int(np.flatnonzero(shares_N < CLEAN)[-1])
        after = int(np.flatnonzero(shares_N > 1 - CLEAN)[0])
        middle = int(np.ceil(np.interp(0.5, shares_N[before : after + 1], looks[before : after + 1])))
        return Gradual(start + int(looks[before]), start + middle, start + int(looks[after]), fade)

    def _is_other_scene(self, first_P: np.ndarray, last_P: np.ndarray) -> bool:
        """Whether most of the picture has changed (not only a title came up), and not only its light."""
        changed_P = np.abs(last_P - first_P) > self._least_change / 2
        return bool(changed_P.mean() >= CHANGED_SHARE) and not same_shapes(first_P, last_P)


def _windows(longest: int) -> Iterator[_Window]:
    length = longest
    while length >= SHORTEST_WINDOW:
        looks = np.linspace(0, length, min(length, LOOKS_PER_WINDOW) + 1).round().astype(int)
        yield _Window(length, max(1, length // 8), looks)
        length = round(length / WINDOW_GROWTH)
