"""Detection of cuts, dissolves, fades and wipes in one pass over small pictures of the film.

Hard cuts come from `hard_cuts.py`; dissolves, fades and wipes from `gradual.py`. Four cases are treated here:

* Flashes. A flash is two cuts to the detector, and hides a cut nearby. A change that is undone within
  `min_scene_seconds` is replaced by the picture before it; for this the detectors run slightly behind the film.
* Motion during a gradual change makes its misfit larger than `dissolve_misfit`, and pans and zooms fit as badly. Up to
  `DOUBT` times that misfit, the change stands if no certain change is near, and if the pictures before and after it
  have hardly a pixel in common, though most pixels do not move far.
* Steps of a dissolve. If moving scenes dissolve, one or several pictures look like cuts. At a real cut, the picture
  before it shows the old scene alone, or the one after it the new scene; others near each other are one dissolve. The
  ends of gradual changes move on while the frames there are mixed (`changes.py`).
* False detections. A gradual change that is longer than another one in it, and lopsided, is dropped (`changes.py`).

A change stays pending until its first frames have to be released. Then it becomes one `Boundary` together with the
changes next to it. All thresholds are settings or in `scene_thresholds.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from pipeline.core.config import SceneSettings
from pipeline.stages import scene_thresholds as limits
from pipeline.stages.changes import Change, MixedFrames, TransitionKind
from pipeline.stages.gradual import GradualFinder
from pipeline.stages.hard_cuts import CutFinder
from pipeline.stages.same_scene import found_again, is_back, is_relit, is_title, mean_change, tiny_gray, way_of


@dataclass(frozen=True)
class Boundary:
    """End of one scene and start of the next; frames are ordinals as passed to `SceneFinder.add`."""

    frame: int
    """First frame of the new scene; in a dissolve or fade, the first with more of the new scene than of the old."""
    seconds: float
    """Presentation time of that frame."""
    kind: TransitionKind
    last_clean_before: int
    """Last frame that shows the old scene alone."""
    first_clean_after: int
    """First frame that shows the new scene alone."""


@dataclass(frozen=True)
class _Picture:
    ordinal: int
    seconds: float
    small_bgr_HWC: np.ndarray
    gray_HW: np.ndarray
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
        self._settings = settings
        self._short = max(1, round(settings.min_scene_seconds * fps))
        self._mixed = MixedFrames(lambda frame: self._shown(frame).tiny_P, fps, settings.dissolve_change)
        self._reach = round(limits.REACH * settings.transition_seconds * fps)
        self._longest = max(8, round(limits.WINDOW_ROOM * settings.transition_seconds * fps))
        self._cuts = CutFinder(settings, fps)
        self._gradual = GradualFinder(self._longest, settings.dissolve_change, limits.DOUBT * settings.dissolve_misfit)
        self.lag = self._longest + max(self._cuts.delay, self._gradual.delay) + 2 * self._short + 1
        self._ahead: deque[_Picture] = deque()
        self._seen: deque[_Picture] = deque(maxlen=self.lag + 2)
        self._steady: deque[_Picture] = deque(maxlen=self.lag + 2)
        self._count = 0
        self._pending: list[Change] = []
        self._unexamined: set[int] = set()
        self._settled_to = 0

    def add(self, ordinal: int, seconds: float, small_bgr_HWC: np.ndarray) -> list[Boundary]:
        """Take the next frame, as uint8 BGR scaled down to `detect_width`; return the boundaries that it makes final.

        The picture is buffered, not copied.
        """
        gray_HW = cv2.cvtColor(small_bgr_HWC, cv2.COLOR_BGR2GRAY)
        self._ahead.append(_Picture(ordinal, seconds, small_bgr_HWC, gray_HW, tiny_gray(gray_HW)))
        if len(self._ahead) > self._short:
            self._take()
        return list(self._boundaries_until(self._count - 1 - self.lag + self._short))

    def finish(self) -> list[Boundary]:
        """End the film and return the boundaries still pending."""
        while self._ahead:
            self._take()
        if self._steady:
            self._enqueue_cuts(self._cuts.finish(self._steady[-1].small_bgr_HWC))
            self._mark_steps()
        return list(self._boundaries_until(self._count))

    def _take(self) -> None:
        """Pass the next frame to the detectors, or the one before it in place of a flash."""
        # 1. Replace a flash, which is two cuts to the detector and hides a cut nearby.
        seen = self._ahead.popleft()
        steady = self._steady[-1] if self._steady and self._is_flash(seen) else seen
        self._seen.append(seen)
        self._steady.append(steady)
        self._count += 1
        # 2. Queue the hard cuts that their detector has settled by now.
        self._enqueue_cuts(self._cuts.add(steady.small_bgr_HWC, steady.gray_HW))
        # 3. Queue the gradual changes that end here. A change in doubt must lead to another scene, and more must change
        #    than letters or the light. A wipe replaces a change of light that overlaps it.
        for gradual in self._gradual.add(steady.tiny_P):
            is_sure = gradual.misfit < self._settings.dissolve_misfit
            change = Change(gradual.last_clean_before, gradual.middle, gradual.first_clean_after, gradual.kind, is_sure)
            if (is_sure or self._is_other(change)) and not self._is_title_or_light(change):
                self._pending = [other for other in self._pending if not self._is_light_beside(other, change)]
                self._enqueue(self._with_clean_start(change))
        # 4. Mark the cuts queued some frames ago that are steps of a dissolve, now that the frames after them are here.
        self._mark_steps()

    def _enqueue_cuts(self, candidates: Mapping[int, bool]) -> None:
        for frame, is_sure in candidates.items():
            old, new = self._shown(frame - 1), self._shown(frame)
            if self._cuts.is_cut(old.small_bgr_HWC, new.small_bgr_HWC, is_sure):
                self._enqueue(Change(frame - 1, frame, frame, "cut"))
                self._unexamined.add(frame)

    def _mark_steps(self) -> None:
        """Mark the cuts that are steps of a dissolve, once the frames beside them are there or the film has ended."""
        places = {change.frame: place for place, change in enumerate(self._pending) if change.kind == "cut"}
        self._unexamined &= places.keys()
        newest, has_ended = self._count - 1, not self._ahead
        for frame in [frame for frame in self._unexamined if has_ended or frame + self._mixed.beside <= newest]:
            self._unexamined.remove(frame)
            if self._mixed.is_step(frame, places.keys(), newest):
                step = self._pending[places[frame]]
                earlier = step.before - self._earliest(step)
                self._pending[places[frame]] = replace(step, earlier=earlier, is_step=True)

    def _earliest(self, change: Change) -> int:
        """Return the earliest start that a change can be given: after the changes before it, and not yet released."""
        ended = [other.after for other in self._pending if other.after <= change.before and not other.is_step]
        reached = max(change.before - self._reach, self._count - self.lag + self._short, self._settled_to, 0, *ended)
        return min(reached, change.before)

    def _with_clean_start(self, change: Change) -> Change:
        """Return the change with an earlier start, as long as the frame there shows some of the new scene."""
        start = self._mixed.clean_start(change.before, change.after, self._earliest(change))
        return replace(change, earlier=change.before - start)

    def _end(self, change: Change) -> int:
        """Return the first frame from the end of a change on that shows the new scene alone."""
        if change.kind == "cut" and not change.is_step:
            return change.after
        begins = [other.before for other in self._pending if other.before >= change.after]
        latest = min(change.after + self._reach, self._count - 1, *begins)
        if change.is_step:
            return max(change.after, latest)
        return self._mixed.clean_end(change.before, change.after, latest)

    def _is_flash(self, seen: _Picture) -> bool:
        """Return true if the picture before this one returns within the frames ahead."""
        before_P = self._steady[-1].tiny_P
        change = mean_change(before_P, seen.tiny_P)
        return change > limits.FLASH_LEVELS and any(is_back(before_P, later.tiny_P, change) for later in self._ahead)

    def _is_other(self, change: Change) -> bool:
        """Return true if a change in doubt is far from certain ones, and leads to another scene."""
        if change.before < self._settled_to or any(
            other.is_sure and self._is_close(other, change) for other in self._pending
        ):
            return False
        pictures = [self._shown(frame).small_bgr_HWC for frame in range(change.before, change.after + 1)]
        return found_again(pictures[0], pictures[-1]) < limits.MOST_FOUND and way_of(pictures) < limits.LONGEST_WAY

    def _is_title_or_light(self, change: Change) -> bool:
        """Return true if letters dissolve, or only the light changes next to a cut or wipe in the change."""
        if change.kind != "dissolve":
            return False
        cuts = [cut for cut in self._pending if cut.kind == "cut" and change.before <= cut.before < change.after - 1]
        return (
            is_title(self._shown(change.before).gray_HW, self._shown(change.after).gray_HW)
            or any(self._is_relit(cut.after, change.after) or self._is_relit(change.before, cut.before) for cut in cuts)
            or any(self._is_light_beside(change, wipe) for wipe in self._pending)
        )

    def _is_light_beside(self, change: Change, wipe: Change) -> bool:
        """Return true if a dissolve that overlaps a wipe is nothing but a part of it and a change of the light."""
        if change.kind != "dissolve" or wipe.kind != "wipe" or not change.overlaps(wipe):
            return False
        # Leave a margin: near its ends, a wipe shows the other scene only in the corners.
        beside = (wipe.after - wipe.before) // 4
        rests = [(change.before, wipe.before - beside), (wipe.after + beside, change.after)]
        relit = [self._is_relit(frame, later) for frame, later in rests if frame < later]
        return bool(relit) and all(relit)

    def _is_relit(self, frame: int, later: int) -> bool:
        return later - frame > 1 and is_relit(self._shown(frame).tiny_P, self._shown(later).tiny_P)

    def _enqueue(self, change: Change) -> None:
        """Queue a change, merged with the changes that it overlaps; ignore it if it begins within a settled one."""
        if change.before < self._settled_to or any(other.replaces(change) for other in self._pending):
            return
        self._pending = [other for other in self._pending if not change.replaces(other)]
        if change.is_sure:  # changes in doubt near it were its motion
            self._pending = [other for other in self._pending if other.is_sure or not self._is_close(change, other)]
        for other in [other for other in self._pending if other.overlaps(change)]:
            self._pending.remove(other)
            change = change.joined(other)
        self._pending.append(change)

    def _boundaries_until(self, until: int) -> Iterator[Boundary]:
        """Yield the boundaries of the pending changes in order, until none is left that starts up to `until`."""
        self._pending.sort(key=lambda change: change.before)
        while any(change.start <= until for change in self._pending):
            # 1. Take the first change, and those after it that leave no room for a scene between them.
            group = [self._pending.pop(0)]
            reach = group[0].before + self._longest
            while self._pending and self._is_close(group[-1], self._pending[0]) and self._pending[0].before <= reach:
                group.append(self._pending.pop(0))
            # 2. Together they are one boundary, or none. Changes found later must begin after them.
            boundary = self._boundary_of(group)
            self._settled_to = group[-1].after
            if boundary:
                yield boundary

    def _is_close(self, one: Change, other: Change) -> bool:
        """Return true if two changes overlap, are steps of one dissolve, or leave too few frames for a scene."""
        return one.frames_to(other) < (self._reach if one.is_step and other.is_step else self._short)

    def _boundary_of(self, group: Sequence[Change]) -> Boundary | None:
        """Return changes in quick succession as one boundary, or None if they lead back to the first picture."""
        first, last = group[0], group[-1]
        old_P, new_P = self._shown(first.before).tiny_P, self._shown(last.after).tiny_P
        shown = [self._shown(change.after).tiny_P for change in group]
        most = max(mean_change(old_P, picture_P) for picture_P in shown)
        # 1. If the film returns to the old picture, nothing has changed: report no boundary.
        if len(group) > 1 and is_back(old_P, new_P, most):
            return None
        # 2. The new scene begins at the first change after which its final picture is on screen.
        arrival = next(
            change
            for change, picture_P in zip(group, shown, strict=True)
            if change is last or is_back(picture_P, new_P, most)
        )
        # 3. Widen the boundary to the nearest frames that show one scene only: clips end and start there.
        start, end = max(first.start, self._settled_to), self._end(last)
        at, before, after = self._at(arrival.frame), self._at(start), self._at(end)
        kind: TransitionKind = "dissolve" if arrival.is_step else arrival.kind
        return Boundary(at.ordinal, at.seconds, kind, before.ordinal, after.ordinal)

    def _at(self, frame: int) -> _Picture:
        """Return a frame as it is in the film."""
        return self._seen[frame - self._count]

    def _shown(self, frame: int) -> _Picture:
        """Return a frame as passed to the detectors: without flashes."""
        return self._steady[frame - self._count]
