"""Where scenes end: cuts, dissolves and fades, found while the film streams by as small pictures.

Hard cuts come from PySceneDetect's AdaptiveDetector, which compares the change at a frame with the change at its
neighbours. Four things need care around it:

* Drawings are held for two, three or many frames. The change within a hold is nothing, so next to it any new drawing
  looks like a cut. The detector is therefore given drawings, not frames: a picture that repeats the last is skipped.
* A flash is two cuts to the detector, and hides a cut nearby. What is undone within `min_scene_seconds` is painted
  over with the picture before it; for that the detectors run a little behind the film.
* Next to a hold even a character's new pose stands out. A cut changes the background too, so a least share of the
  pixels must change (at every agreed cut of Big Buck Bunny 78 % or more do).
* During a fast pan the neighbours change so much that a cut hardly stands out. There a lower threshold is enough if
  the colours change as well, which a pan leaves alone.

Dissolves and fades come from `dissolves.py`. Everything found waits until nothing found later can touch it; then
neighbours are judged together and reported as one `Boundary`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from scenedetect.common import FrameTimecode
from scenedetect.detectors import AdaptiveDetector, ContentDetector

from pipeline.core.config import SceneSettings
from pipeline.stages.dissolves import DissolveFinder, mean_change, tiny_gray

TransitionKind = Literal["cut", "dissolve", "fade"]
KINDS: tuple[TransitionKind, ...] = ("cut", "dissolve", "fade")

SAME_DRAWING = 0.5
"""Mean gray levels by which an encoder changes a held drawing at most."""
LONGEST_HOLD = 6
"""Frames. A drawing held longer is given again, so that the detector's neighbours, and with them our delay, end."""
CHANGED_PIXEL = 10
"""A pixel has changed if any of its colours differs by more levels than this."""
FLASH_LEVELS = 8
"""Mean gray levels by which a picture must differ from the one before to be a flash at all."""
SAME_SHARE, SAME_LEVELS = 0.3, 15
"""A picture is back after a flash if it differs by less than this share of the flash and by fewer gray levels than
that. At cuts the mean change was 23 levels and more, by movement in a quarter of a second 15 in one case of ten."""
HISTOGRAM = ([0, 1, 2], None, [12, 4, 8], [0, 180, 0, 256, 0, 256])
"""Channels, mask, bins and ranges of a hue-saturation-value histogram: hue tells most, saturation least."""


@dataclass(frozen=True)
class Boundary:
    """The end of one scene and the start of the next; frames are ordinals as given to `SceneFinder.add`."""

    frame: int
    """First frame of the new scene; of a dissolve or fade, the first that holds more of the new than of the old."""
    seconds: float
    """Presentation time of that frame."""
    kind: TransitionKind
    last_clean_before: int
    """Last frame that shows the old scene alone."""
    first_clean_after: int
    """First frame that shows the new scene alone."""


@dataclass(frozen=True)
class _Seen:
    ordinal: int
    seconds: float
    small_bgr_HWC: np.ndarray
    gray_HW: np.ndarray
    tiny_P: np.ndarray


@dataclass(frozen=True)
class _Change:
    """Something found, before it is judged; frames count from the first one added."""

    before: int
    frame: int
    after: int
    kind: TransitionKind

    def overlaps(self, other: _Change) -> bool:
        return self.before < other.after and other.before < self.after

    def joined(self, other: _Change) -> _Change:
        """One change from two that overlap: the longer one tells the frame, the more gradual one the kind."""
        longer = max(self, other, key=lambda change: change.after - change.before)
        kind = max(self.kind, other.kind, key=KINDS.index)
        return _Change(min(self.before, other.before), longer.frame, max(self.after, other.after), kind)


class SceneFinder:
    """Finds the cuts of one film from its frames in presentation order, in bounded memory.

    Args:
        settings: the section `scenes` of the configuration.
        fps: nominal rate; it turns the settings' seconds into frames. What is reported are the caller's ordinals
            and seconds, so a variable rate does no harm.

    Attributes:
        lag: the most frames by which a cut is reported late: all frames up to `newest - lag` have their final scene,
            and no cut reported later has its `last_clean_before` among them.
    """

    def __init__(self, settings: SceneSettings, fps: float) -> None:
        self._settings = settings
        self._fps = float(fps)  # FrameTimecode refuses whole numbers
        self._short = max(1, round(settings.min_scene_seconds * fps))
        self._longest = max(8, round(settings.transition_seconds * fps))
        self._sure = _detector(settings, settings.adaptive_threshold)
        self._likely = _detector(settings, settings.moving_threshold, self._sure)
        self._dissolves = DissolveFinder(self._longest, settings.dissolve_change, settings.dissolve_misfit)
        detector_delay = LONGEST_HOLD * settings.adaptive_window
        self.lag = self._longest + max(detector_delay, self._dissolves.delay) + 2 * self._short + 1
        self._ahead: deque[_Seen] = deque()
        self._seen: deque[_Seen] = deque(maxlen=self.lag + 2)
        self._steady: deque[_Seen] = deque(maxlen=self.lag + 2)
        self._count = 0
        self._drawing_HW: np.ndarray | None = None
        self._drawing_age = 0
        self._waiting: list[_Change] = []
        self._judged_to = 0

    def add(self, ordinal: int, seconds: float, small_bgr_HWC: np.ndarray) -> list[Boundary]:
        """The cuts that this frame made certain, in order.

        Args:
            ordinal: number of the frame in presentation order.
            seconds: its presentation time.
            small_bgr_HWC: the frame scaled down to `detect_width`, uint8 BGR; it is kept for a while, not copied.
        """
        gray_HW = cv2.cvtColor(small_bgr_HWC, cv2.COLOR_BGR2GRAY)
        self._ahead.append(_Seen(ordinal, seconds, small_bgr_HWC, gray_HW, tiny_gray(gray_HW)))
        if len(self._ahead) > self._short:
            self._take()
        return list(self._settle(self._count - 1 - self.lag + self._short))

    def finish(self) -> list[Boundary]:
        """The cuts still waiting when the film is over."""
        while self._ahead:
            self._take()
        if self._steady:
            for _ in range(self._settings.adaptive_window):
                self._detect(self._steady[-1].small_bgr_HWC)
        return list(self._settle(self._count))

    def _take(self) -> None:
        """Give the detectors the next frame, or the one before it in place of a flash."""
        seen = self._ahead.popleft()
        steady = self._steady[-1] if self._steady and self._is_flash(seen) else seen
        self._seen.append(seen)
        self._steady.append(steady)
        self._count += 1
        if self._is_new_drawing(steady.gray_HW):
            # The first drawing is repeated as its own neighbours, or no cut could be seen right after it.
            for _ in range(1 if self._count > 1 else 1 + self._settings.adaptive_window):
                self._detect(steady.small_bgr_HWC)
        for found in self._dissolves.add(steady.tiny_P):
            kind: TransitionKind = "fade" if found.fade else "dissolve"
            self._note(_Change(found.last_clean_before, found.middle, found.first_clean_after, kind))

    def _is_flash(self, seen: _Seen) -> bool:
        """Whether the picture before this one is back in a moment."""
        before_P = self._steady[-1].tiny_P
        change = mean_change(before_P, seen.tiny_P)
        return change > FLASH_LEVELS and any(_is_back(before_P, later.tiny_P, change) for later in self._ahead)

    def _is_new_drawing(self, gray_HW: np.ndarray) -> bool:
        self._drawing_age += 1
        held = self._drawing_HW is not None and mean_change(gray_HW, self._drawing_HW) < SAME_DRAWING
        if held and self._drawing_age < LONGEST_HOLD:
            return False
        self._drawing_HW = gray_HW
        self._drawing_age = 0
        return True

    def _detect(self, small_bgr_HWC: np.ndarray) -> None:
        now = FrameTimecode(self._count - 1, self._fps)
        sure = {int(at.frame_num) for at in self._sure.process_frame(now, small_bgr_HWC)}
        likely = {int(at.frame_num) for at in self._likely.process_frame(now, small_bgr_HWC)}
        for frame in sorted(sure | likely):
            if frame > 0 and self._is_cut(frame, frame in sure):
                self._note(_Change(frame - 1, frame, frame, "cut"))

    def _is_cut(self, frame: int, sure: bool) -> bool:
        """Whether enough of the picture is new at this frame, and if its score is not high, its colours as well."""
        old_HWC, new_HWC = self._shown(frame - 1).small_bgr_HWC, self._shown(frame).small_bgr_HWC
        changed_HW = cv2.absdiff(old_HWC, new_HWC).max(axis=2) > CHANGED_PIXEL
        if changed_HW.mean() < self._settings.changed_share:
            return False
        return sure or float(np.minimum(_colours(old_HWC), _colours(new_HWC)).sum()) < self._settings.colour_overlap

    def _note(self, change: _Change) -> None:
        """Let a change wait for judgement, as part of those it overlaps; the tail of a judged one is old news."""
        if change.before < self._judged_to:
            return
        for other in [other for other in self._waiting if other.overlaps(change)]:
            self._waiting.remove(other)
            change = change.joined(other)
        self._waiting.append(change)

    def _settle(self, until: int) -> Iterator[Boundary]:
        """Judge what begins before `until`."""
        self._waiting.sort(key=lambda change: change.before)
        while self._waiting and self._waiting[0].before <= until:
            group = [self._waiting.pop(0)]
            reach = group[0].before + self._longest
            while self._waiting and self._is_close(group[-1], self._waiting[0]) and self._waiting[0].before <= reach:
                group.append(self._waiting.pop(0))
            self._judged_to = group[-1].after
            cut = self._judge(group)
            if cut:
                yield cut

    def _is_close(self, one: _Change, following: _Change) -> bool:
        """Whether what lies between two changes is too short for a scene."""
        return following.before - one.after + 1 < self._short

    def _judge(self, group: Sequence[_Change]) -> Boundary | None:
        """Changes in quick succession as one cut, or none if they lead back to where they began."""
        first, last = group[0], group[-1]
        old_P, new_P = self._shown(first.before).tiny_P, self._shown(last.after).tiny_P
        shown = [self._shown(change.after).tiny_P for change in group]
        most = max(mean_change(old_P, picture_P) for picture_P in shown)
        if len(group) > 1 and _is_back(old_P, new_P, most):
            return None
        arrival = next(
            change
            for change, picture_P in zip(group, shown, strict=True)
            if change is last or _is_back(picture_P, new_P, most)
        )
        at, before, after = self._at(arrival.frame), self._at(first.before), self._at(last.after)
        return Boundary(at.ordinal, at.seconds, arrival.kind, before.ordinal, after.ordinal)

    def _at(self, frame: int) -> _Seen:
        """A frame as it is in the film."""
        return self._seen[frame - self._count]

    def _shown(self, frame: int) -> _Seen:
        """A frame as the detectors were shown it: without flashes."""
        return self._steady[frame - self._count]


def _is_back(old_P: np.ndarray, new_P: np.ndarray, change: float) -> bool:
    """Whether a picture is the same as an old one, after a change by so many levels."""
    return mean_change(old_P, new_P) < min(SAME_LEVELS, SAME_SHARE * change)


class _ScoreOf(AdaptiveDetector):  # type: ignore[misc]
    """A detector that judges by the frame scores of another one, fed first: the scores are most of the work."""

    leader: AdaptiveDetector

    def _calculate_frame_score(self, timecode: FrameTimecode, frame_img: np.ndarray) -> float | None:  # noqa: ARG002
        score: float | None = self.leader._frame_score
        return score


def _detector(settings: SceneSettings, threshold: float, scores_of: AdaptiveDetector | None = None) -> AdaptiveDetector:
    kind = _ScoreOf if scores_of else AdaptiveDetector
    detector = kind(
        adaptive_threshold=threshold,
        min_scene_len=0,
        window_width=settings.adaptive_window,
        min_content_val=settings.min_content,
        weights=ContentDetector.Components(delta_hue=1.0, delta_sat=1.0, delta_lum=1.0, delta_edges=0.0),
        luma_only=False,
        kernel_size=None,
    )
    if scores_of:
        detector.leader = scores_of
    return detector


def _colours(bgr_HWC: np.ndarray) -> np.ndarray:
    """Share of the picture in each bin of its colour histogram."""
    channels, mask, bins, ranges = HISTOGRAM
    counts = cv2.calcHist([cv2.cvtColor(bgr_HWC, cv2.COLOR_BGR2HSV)], channels, mask, bins, ranges)
    shares: np.ndarray = counts / counts.sum()
    return shares
