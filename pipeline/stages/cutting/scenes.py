"""Detection of cuts, dissolves, fades and wipes in one pass over small pictures of the film.

A network scores every frame (`transition_scores.py`): m, it is a mix of two scenes; b, a new scene begins with it.

* A run of frames with m > `IN_RUN` is a gradual change if b exceeds `BEGINS` in it, or `BEGINS_IN_RUN` if m exceeds
  `MIXED` somewhere. The new scene begins where b is largest; the frames of the run are in no clip.
* Elsewhere, a frame with b > `BEGINS` that no neighbour exceeds is a cut, and so is a cut that PySceneDetect finds
  (`hard_cuts.py`): the network misses jumps within one place.
* Changes that leave no room for a scene of `min_scene_seconds` between them are one boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np

from pipeline.core.config import SceneSettings
from pipeline.stages.cutting.hard_cuts import CutFinder
from pipeline.stages.cutting.transition_scores import LAG, STEP, TransitionScorer
from pipeline.stages.same_scene import is_blank, likeness_of, mean_change, tiny_gray, undecided

TransitionKind = Literal["cut", "wipe", "dissolve", "fade"]
KINDS: tuple[TransitionKind, ...] = ("cut", "wipe", "dissolve", "fade")

IN_RUN, MIXED = 0.2, 0.75
"""Score of every mixed frame of a gradual change, and of its surest one."""
BEGINS, BEGINS_IN_RUN = 0.5, 0.3
"""Score of the first frame of a scene after a cut, and in a gradual change."""
NEAR = 3
"""Frames within which two cuts, or the parts of a gradual change, are one."""
SHORTEST = 4
"""Frames of a gradual change; fewer are a cut to the eye."""
ROOM = 1.5
"""Longest gradual change that is kept whole, over `transition_seconds`."""
CHANGED_LEVELS = 12
"""Least difference of a changed pixel between two scenes, gray levels."""
END_SECONDS, LEAST_STEP = 0.125, 2.0
"""Distance of a cut from an end of the film within which it must exceed the steps beside it, and the least ratio."""
LIT_LEVELS, SAME_PLACE = 8, 0.95
"""Gray levels by which light changes a pixel, and the least likeness of one place in different light."""
MOST_UNDECIDED = 0.3
"""Largest share of the changed pixels that show neither scene during a wipe."""


@dataclass(frozen=True)
class Boundary:
    """End of one scene and start of the next; frames are ordinals as passed to `SceneFinder.add`."""

    frame: int
    """First frame of the new scene; in a gradual change, the first with more of the new scene than of the old."""
    seconds: float
    """Presentation time of that frame."""
    kind: TransitionKind
    last_clean_before: int
    """Last frame that shows the old scene alone."""
    first_clean_after: int
    """First frame that shows the new scene alone."""


@dataclass(frozen=True)
class _Change:
    """A change in scored frames: the last one before it, the first of the new scene, the first one after it."""

    before: int
    frame: int
    after: int
    kind: TransitionKind
    begins: float
    """Score of the first frame of the new scene."""


@dataclass(frozen=True)
class _Scored:
    ordinal: int
    seconds: float
    tiny_P: np.ndarray


class SceneFinder:
    """Detector of scene boundaries in one film, from frames in presentation order, in bounded memory.

    Args:
        settings: the section `scenes` of the configuration.
        fps: nominal rate, used to convert the settings' seconds into frames. Reported boundaries carry the caller's
            ordinals and seconds, so a variable rate is safe.

    Attributes:
        lag: largest delay of a report, in frames: all frames up to `newest - lag` have their final scene, and no
            boundary reported later has its `last_clean_before` among them.
    """

    def __init__(self, settings: SceneSettings, fps: float) -> None:
        self._short = max(1, round(settings.min_scene_seconds * fps))
        self._longest = self._short + max(16, round(ROOM * settings.transition_seconds * fps))
        self._beside = max(NEAR, round(END_SECONDS * fps))
        self._cut_finder = CutFinder(settings, fps)
        self.lag = max(LAG, self._cut_finder.delay) + STEP + self._longest + 3 * NEAR + 2
        self._scorer = TransitionScorer()
        self._cuts: list[int] = []
        """Cuts of PySceneDetect in the frames that are not settled."""
        self._frames: list[_Scored] = []
        self._scores_TD = np.zeros((0, 2), np.float32)
        self._first = 0
        """Number of the first frame and score that are kept."""
        self._settled = 0
        """Number of the first frame that may still be part of a change not found yet."""
        self._last = 0
        self._pending: list[_Change] = []

    def add(self, ordinal: int, seconds: float, small_bgr_HWC: np.ndarray) -> list[Boundary]:
        """Take the next frame and return the boundaries that it makes final, in order.

        Args:
            ordinal: number of the frame in presentation order.
            seconds: its presentation time.
            small_bgr_HWC: the frame scaled down to `detect_width`, uint8 BGR.
        """
        gray_HW = cv2.cvtColor(small_bgr_HWC, cv2.COLOR_BGR2GRAY)
        tiny_P = tiny_gray(gray_HW)
        self._frames.append(_Scored(ordinal, seconds, tiny_P))
        self._cuts += self._cut_finder.add(small_bgr_HWC, gray_HW, tiny_P)
        scores_TD = self._scorer.add(small_bgr_HWC)
        if not len(scores_TD):
            return []
        self._scores_TD = np.concatenate([self._scores_TD, scores_TD])
        return list(self._boundaries(has_ended=False))

    def finish(self) -> list[Boundary]:
        """End the film and return the boundaries still pending."""
        self._scores_TD = np.concatenate([self._scores_TD, self._scorer.finish()])
        self._cuts += self._cut_finder.finish()
        return list(self._boundaries(has_ended=True))

    def _boundaries(self, *, has_ended: bool) -> Iterator[Boundary]:
        # 1. Settle the frames up to the last one that is far from any run: what follows may belong to a longer change.
        count = len(self._scores_TD)
        if not has_ended:
            count = min(count, len(self._frames) - self._cut_finder.delay)
        if count <= 0:
            return
        known = self._first + count
        is_near = np.convolve(self._scores_TD[:count, 0] > IN_RUN, np.ones(2 * NEAR + 1), "same") > 0
        free = self._first + np.flatnonzero(~is_near[: max(count - NEAR, 0)])
        end = known if has_ended else max(self._settled, int(free[-1]) if len(free) else 0)
        if known - end > self._longest:
            end = known - NEAR
        # 2. Queue the changes among them, each joined with the one before it if no scene has room between them.
        for change in self._changes(end):
            if self._pending and change.before - self._pending[-1].after < self._short:
                change = _joined(self._pending.pop(), change)
            self._pending.append(change)
        self._settled = end
        # 3. Report the changes that nothing can join any more. A change longer than any is reported as it is.
        while self._pending:
            change = self._pending[0]
            is_last = len(self._pending) == 1
            if (
                is_last
                and not has_ended
                and end - change.after <= self._short
                and known - change.before < self._longest
            ):
                break
            yield self._boundary(self._pending.pop(0))
        # 4. Forget the frames and scores before all that.
        kept = min([self._settled, *(change.before for change in self._pending)]) - NEAR - 1
        if kept > self._first:
            self._frames, self._scores_TD = self._frames[kept - self._first :], self._scores_TD[kept - self._first :]
            self._first = kept

    def _changes(self, end: int) -> list[_Change]:
        """Return the changes from the first frame that is not settled up to `end`, by their first frames."""
        mixed_T, begins_T = self._scores_TD[:, 0], self._scores_TD[:, 1]
        start, end = self._settled - self._first, end - self._first
        cuts = [cut - self._first for cut in self._cuts if cut - self._first < end]
        self._cuts = [cut for cut in self._cuts if cut - self._first >= end]
        is_free_T = np.ones(len(mixed_T), bool)
        found: list[tuple[int, int, int, TransitionKind]] = []
        # 1. Runs of mixed frames in which a new scene begins. Where PySceneDetect finds a cut, it knows the frame.
        for first, last in _runs(mixed_T[:end] > IN_RUN, start):
            around = slice(max(first - 2, 0), last + 3)
            frame = around.start + int(begins_T[around].argmax())
            is_sure = mixed_T[first : last + 1].max() > MIXED
            if begins_T[frame] > (BEGINS_IN_RUN if is_sure else BEGINS):
                kind = self._kind(first, last)
                at = _exact(frame, cuts) if kind == "cut" else frame
                found.append((min(first, at) - 1, at, max(last + 1, at), kind))
                is_free_T[around] = False
        # 2. Frames elsewhere with which a new scene begins.
        for frame in map(int, start + np.flatnonzero(begins_T[start:end] > BEGINS)):
            near = slice(max(frame - NEAR, 0), frame + NEAR + 1)
            if is_free_T[frame] and frame == near.start + int(begins_T[near].argmax()):
                at = _exact(frame, cuts)
                found.append((min(frame, at) - 1, at, max(frame, at), "cut"))
                is_free_T[near] = False
        # 3. Cuts that the network does not know.
        found += [(cut - 1, cut, cut, "cut") for cut in cuts if is_free_T[cut] and not self._is_relit(cut)]
        changes = [
            _Change(before + self._first, at + self._first, after + self._first, kind, float(begins_T[at]))
            for before, at, after, kind in found
            if at > 0 and not self._is_motion(at)
        ]
        return sorted(changes, key=lambda change: change.frame)

    def _is_motion(self, frame: int) -> bool:
        """Return true for a step next to an end of the film, and not much larger than those beside it.

        The network sees the first and the last picture repeated there, so action looks like a cut.
        """
        if self._first + frame <= self._beside + 1:
            beside = range(frame + 1, frame + 2 * self._beside)
        elif frame >= len(self._frames) - self._beside - 1:
            beside = range(frame - 2 * self._beside, frame)
        else:
            return False
        return self._step(frame) < LEAST_STEP * max(self._step(number) for number in beside)

    def _is_relit(self, frame: int) -> bool:
        """Return true if a frame shows the place of the one before it in other light."""
        before_P, after_P = self._frames[frame - 1].tiny_P, self._frames[frame].tiny_P
        return likeness_of(before_P, after_P, np.abs(after_P - before_P) > LIT_LEVELS) > SAME_PLACE

    def _step(self, frame: int) -> float:
        places = np.clip((frame - 1, frame), 0, len(self._frames) - 1)
        return mean_change(*(self._frames[place].tiny_P for place in places))

    def _kind(self, first: int, last: int) -> TransitionKind:
        """Return the kind of a run of mixed frames; a short one is a cut that motion or the encoder has blurred."""
        if last - first < SHORTEST:
            return "cut"
        pictures_TP = np.stack([one.tiny_P for one in self._frames[max(first - 1, 0) : last + 2]])
        change_P = pictures_TP[-1] - pictures_TP[0]
        changed_P = np.abs(change_P) > CHANGED_LEVELS
        shares_TC = (pictures_TP[1:-1, changed_P] - pictures_TP[0, changed_P]) / change_P[changed_P]
        if changed_P.any() and undecided(shares_TC).mean() < MOST_UNDECIDED:
            return "wipe"
        return "fade" if any(is_blank(picture_P) for picture_P in pictures_TP) else "dissolve"

    def _boundary(self, change: _Change) -> Boundary:
        newest = self._first + len(self._frames) - 1
        frame, before = max(change.frame, self._last + 1), max(change.before, self._last - 1, 0)
        numbers = frame, min(before, frame - 1), min(max(change.after, frame), newest)
        at, old, new = (self._frames[number - self._first] for number in numbers)
        self._last = frame
        return Boundary(at.ordinal, at.seconds, change.kind, old.ordinal, new.ordinal)


def _joined(one: _Change, other: _Change) -> _Change:
    """Return two changes in quick succession as one, whose new scene is that of the second, or of a surer cut."""
    is_cut = one.after - one.before == 1 and one.begins > other.begins
    kind = "cut" if is_cut else max(one.kind, other.kind, key=KINDS.index)
    return replace(one if is_cut else other, before=one.before, after=max(one.after, other.after), kind=kind)


def _exact(frame: int, cuts: Sequence[int]) -> int:
    """Return the last cut near a frame, after any flash, or the frame itself if none is near."""
    return max((cut for cut in cuts if abs(cut - frame) <= NEAR), default=frame)


def _runs(is_mixed_T: np.ndarray, start: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last frame of each run from `start` on; short gaps do not end a run."""
    numbers = start + np.flatnonzero(is_mixed_T[start:])
    if len(numbers):
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > NEAR) + 1):
            yield int(run[0]), int(run[-1])
