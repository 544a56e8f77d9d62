"""Detector of gradual transitions (dissolves, fades, wipes, irises), which no comparison of neighbouring frames finds.

In windows of several lengths that end at the newest frame, let A be the first picture and B the last. At every pixel p
that differs between both, the share of B in frame t is

    r_tp = (x_tp - A_p) / (B_p - A_p)               s_t = median_p r_tp, or the share of pixels with r_tp > 1/2

In a dissolve all pixels have the same share, and the misfit is the median of |r_tp - s_t| over the mixed frames and
their pixels. In a wipe or iris every pixel shows A or B. The misfit is the share of undecided pixels (neither below 1/4
nor above 3/4), and at most `MOST_RETURNED` of the pixels return. We use medians because characters and the camera keep
moving during a transition. A window is a transition if all of these hold:

    -LARGEST_RETURN <= s_(t+1) - s_t <= LARGEST_STEP    else, upwards, a hard cut: a perfect mix, but s jumps
    s < CLEAN next to A, s > 1 - CLEAN next to B        else part of the transition lies outside the window
    a dissolve: no frame beside it shows a third scene  else a cut lies within the window
    misfit < largest_misfit * STEEP * (LONGEST_RISE - rise)     else a pan, a zoom or a moving character
    misfit < largest_misfit * WHOLE_MISFIT or FIGURE_MISFIT     and A and B are other scenes; else the light changed

`rise` is the part of the window in which s goes from `SEEN` to 1 - `SEEN`. A pan or a zoom fills every window. A
transition fills only windows that are hardly longer, and the next longer ones show it with a smaller rise.

A and B are other scenes if most pixels differ and the shapes there are not alike. Figures that dissolve before a place
that stays change fewer pixels, as pans do too; they must fit a dissolve better. A fade is a dissolve from or to a blank
picture (black, white or any colour), and always another scene.

A pixel differs by more than `least_change` gray levels, times `light_of`: in darker pictures by down to half of it.
Pictures are tiny ones (`same_scene.py`), and the names in capitals are in `scene_thresholds.py`. Most windows are
rejected by their second and their last picture but one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from pipeline.stages import scene_thresholds as limits
from pipeline.stages.same_scene import TINY_HEIGHT, TINY_WIDTH, is_blank, light_of, likeness_of, medians

GradualKind = Literal["dissolve", "fade", "wipe"]


@dataclass(frozen=True)
class Gradual:
    """A gradual transition; frames are counted from the first one added to the finder."""

    last_clean_before: int
    middle: int
    first_clean_after: int
    kind: GradualKind
    misfit: float
    """Least `largest_misfit` at which this is a transition."""


@dataclass(frozen=True)
class _Window:
    """Windows of one length: frames from first to last, frames between two examinations, offsets of examined frames."""

    length: int
    stride: int
    offsets: np.ndarray


class GradualFinder:
    """Detector of gradual transitions in a stream of tiny pictures; it buffers `longest` + 1 of them.

    Args:
        longest: frames in the longest window; a transition and a clean frame at both ends must fit into it.
        least_change: least difference of a changed pixel, in gray levels.
        largest_misfit: largest misfit of a short rise; see the top of this file. Each transition is reported with the
            least value at which it is one.
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
                found = self._transition(newest - window.length, window)
                if found:
                    yield found

    def _transition(self, start: int, window: _Window) -> Gradual | None:
        """Return the transition that fills the window of `length` + 1 pictures from `start`, if there is one."""
        slot = start % self._size
        window_WP = self._pictures_RP[slot : slot + window.length + 1]
        first_P, last_P = window_WP[0], window_WP[-1]
        least_change = self._least_change * light_of(first_P, last_P)
        change_P = last_P - first_P
        changed_P = np.abs(change_P) > least_change
        changed = np.count_nonzero(changed_P)
        # 1. Reject most windows before the medians, which take much longer: too little differs, part of the transition
        #    lies outside, or both ends show one scene.
        if changed < limits.LEAST_CHANGED * changed_P.size or _is_cut_off(window_WP, window, change_P, changed_P):
            return None
        if not _most_misfit(first_P, last_P, least_change):
            return None
        # 2. Follow the share of the new scene through the window, as in a dissolve and, if most of the picture changed,
        #    as in a wipe. In the longest windows a transition may take longer, since no window is longer still.
        shares_NC = _shares(window_WP, first_P, change_P, changed_P, window.offsets)
        most_returned = limits.MOST_RETURNED_OF_BLANK if is_blank(first_P) or is_blank(last_P) else limits.MOST_RETURNED
        wipe_of = partial(_wipe_of, most_returned=most_returned)
        longest_rise = limits.LONGEST_RISE_OF_ALL if window.length == self._windows[0].length else limits.LONGEST_RISE
        found = []
        for course_of in (_dissolve_of, wipe_of) if changed >= limits.WHOLE * changed_P.size else (_dissolve_of,):
            course = course_of(shares_NC)
            limit = course.least_limit(longest_rise)
            if limit >= self._largest_misfit:
                continue
            # 3. Now that the ends of the transition are known, ask again whether they show different scenes.
            before, after = (int(window.offsets[end]) for end in course.ends)
            most = _most_misfit(window_WP[before], window_WP[after], least_change)
            limit = max(limit, course.misfit / most) if most else np.inf
            if limit < self._largest_misfit:
                # 4. A long window was examined in steps: place the transition by every frame.
                between = np.arange(before, after + 1)
                exact = course_of(_shares(window_WP, first_P, change_P, changed_P, between))
                blank = is_blank(window_WP[before]) or is_blank(window_WP[after])
                kind: GradualKind = "fade" if blank and course.kind == "dissolve" else course.kind
                found.append(exact.found(start + before, kind, limit))
        # 5. Report the explanation that fits better.
        return min(found, key=lambda gradual: gradual.misfit, default=None)


def _is_cut_off(window_WP: np.ndarray, window: _Window, change_P: np.ndarray, changed_P: np.ndarray) -> bool:
    """Return true if most changed pixels show some of the other scene next to A or B already."""
    next_to_ends = window_WP[window.offsets[1]] - window_WP[0], window_WP[-1] - window_WP[window.offsets[-2]]
    direction_P, clean_P = np.sign(change_P), limits.CLEAN * np.abs(change_P)
    most = np.count_nonzero(changed_P) / 2
    return any(np.count_nonzero(changed_P & (moved_P * direction_P > clean_P)) > most for moved_P in next_to_ends)


def _shares(
    window_WP: np.ndarray, first_P: np.ndarray, change_P: np.ndarray, changed_P: np.ndarray, frames: np.ndarray
) -> np.ndarray:
    """Return r_tp of some frames of a window, at the changed pixels."""
    shares_NC: np.ndarray = (window_WP[frames][:, changed_P] - first_P[changed_P]) / change_P[changed_P]
    return shares_NC


def _most_misfit(old_P: np.ndarray, new_P: np.ndarray, least_change: float) -> float:
    """Return the largest part of the limit on the misfit, 0 if both pictures show the same scene."""
    if is_blank(old_P) or is_blank(new_P):
        return 1.0
    changed_P = np.abs(new_P - old_P) > least_change
    share = np.count_nonzero(changed_P) / changed_P.size
    likeness = likeness_of(old_P, new_P, changed_P)
    if share >= limits.WHOLE and likeness < limits.WHOLE_ALIKE:
        return limits.WHOLE_MISFIT
    return limits.FIGURE_MISFIT if share >= limits.LEAST_CHANGED and likeness < limits.FIGURE_ALIKE else 0.0


@dataclass(frozen=True)
class _Course:
    """Share of the new scene in every picture of a window, and the misfit of one kind of transition."""

    kind: Literal["dissolve", "wipe"]
    shares_N: np.ndarray
    misfit: float

    def least_limit(self, longest_rise: float) -> float:
        """Return the least `largest_misfit` that suits the rise; infinity if the rise is longer than `longest_rise`."""
        rise = _rise(self.shares_N)
        return self.misfit / (limits.STEEP * (longest_rise - rise)) if rise < longest_rise else np.inf

    @property
    def ends(self) -> tuple[int, int]:
        """The last picture that shows the old scene alone, and the first after it that shows the new one."""
        before = int(np.flatnonzero(self.shares_N < limits.SEEN)[-1])
        return before, before + int(np.flatnonzero(self.shares_N[before:] > 1 - limits.SEEN)[0])

    def found(self, start: int, kind: GradualKind, limit: float) -> Gradual:
        """Return the transition in frames of the film, whose frame `start` is the first picture."""
        before, after = self.ends
        middle = before + int(np.argmax(self.shares_N[before:] >= 0.5))
        return Gradual(start + before, start + middle, start + after, kind, limit)


def _rise(shares_N: np.ndarray) -> float:
    """Return the part of the window in which the share rises; infinity if it does not rise just once."""
    steps_N = shares_N[1:] - shares_N[:-1]
    if steps_N.max() > limits.LARGEST_STEP or steps_N.min() < -limits.LARGEST_RETURN:
        return np.inf
    if shares_N[1] > limits.CLEAN or shares_N[-2] < 1 - limits.CLEAN:
        return np.inf
    return (_moment(shares_N, 1 - limits.SEEN) - _moment(shares_N, limits.SEEN)) / len(steps_N)


def _moment(shares_N: np.ndarray, share: float) -> float:
    """Return the moment, in pictures, at which the share of the new scene first exceeds a value."""
    after = int(np.argmax(shares_N > share))
    return after - float((shares_N[after] - share) / (shares_N[after] - shares_N[after - 1]))


def _dissolve_of(shares_NC: np.ndarray) -> _Course:
    shares_N = medians(shares_NC)
    mixed_N = (shares_N > limits.CLEAN) & (shares_N < 1 - limits.CLEAN)
    if _rise(shares_N) >= limits.LONGEST_RISE_OF_ALL or not mixed_N.any():  # before more medians, which take longer
        return _Course("dissolve", shares_N, np.inf)
    misfits_NC = np.abs(shares_NC - shares_N[:, None])
    if medians(misfits_NC[~mixed_N]).max() > limits.MOST_UNLIKE:
        return _Course("dissolve", shares_N, np.inf)
    return _Course("dissolve", shares_N, float(np.median(misfits_NC[mixed_N])))


def _wipe_of(shares_NC: np.ndarray, most_returned: float) -> _Course:
    new_NC = shares_NC > 0.5
    shares_N = new_NC.mean(axis=1)
    mixed_N = (shares_N > limits.CLEAN) & (shares_N < 1 - limits.CLEAN)
    returned = (new_NC[:-1] & ~new_NC[1:]).sum() / new_NC.shape[1]
    if returned > most_returned or not mixed_N.any():
        return _Course("wipe", shares_N, np.inf)
    return _Course("wipe", shares_N, float(undecided(shares_NC[mixed_N]).mean()) / limits.UNDECIDED)


def undecided(shares_NC: np.ndarray) -> np.ndarray:
    """Return true for the pixels that show neither of both scenes: their share is neither near 0 nor near 1."""
    far_NC: np.ndarray = np.abs(np.abs(shares_NC - 0.5) - 0.5) > 0.25
    return far_NC


def _windows(longest: int) -> Iterator[_Window]:
    length = longest
    while length >= limits.SHORTEST_WINDOW:
        offsets = np.linspace(0, length, min(length, limits.STEPS_PER_WINDOW) + 1).round().astype(int)
        yield _Window(length, max(1, length // 8), offsets)
        length = round(length / limits.WINDOW_GROWTH)
