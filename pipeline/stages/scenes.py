"""Scene detection: cuts, dissolves, fades and wipes, found in one pass over small pictures of the film.

Hard cuts come from PySceneDetect's AdaptiveDetector, which compares the change at a frame with the change at its
neighbours. Four cases need special treatment:

* Holds. Drawings are held for two, three or many frames. The change within a hold is zero, so any new drawing next to
  it looks like a cut. The detector therefore gets drawings, not frames: a picture that repeats the last is skipped.
* Flashes. A flash is two cuts to the detector, and hides a cut nearby. A change that is undone within
  `min_scene_seconds` is replaced by the picture before it; for this the detectors run slightly behind the film.
* Poses. Next to a hold even a character's new pose stands out. A cut changes the background too, so a least share of
  the pixels must change (at every agreed cut of Big Buck Bunny 78 % or more do).
* Pans. During a fast pan the neighbours change so much that a cut hardly stands out. A lower threshold is enough there
  if the colours change as well, which a pan does not do.

Dissolves, fades and wipes come from `gradual.py`. A change stays pending until no later one can overlap it; then
neighbouring changes are judged together and reported as one `Boundary`.
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
from pipeline.stages.gradual import GradualFinder, likeness_of, mean_change, tiny_gray

TransitionKind = Literal["cut", "wipe", "dissolve", "fade"]
KINDS: tuple[TransitionKind, ...] = ("cut", "wipe", "dissolve", "fade")

ROOM = 1.4
"""Length of the longest window over that of the longest transition: room for clean frames at both ends."""
SAME_DRAWING = 0.5
"""Largest mean change of a held drawing by the encoder, gray levels."""
LONGEST_HOLD = 6
"""Frames. A drawing held longer is passed again, which bounds the detector's delay."""
CHANGED_PIXEL = 10
"""A pixel has changed if any of its channels differs by more levels than this."""
FLASH_LEVELS = 8
"""Least mean difference of a flash from the picture before it, gray levels."""
SAME_SHARE, SAME_LEVELS = 0.3, 15
"""A picture has returned after a flash if it differs by less than this share of the flash and by fewer than this many
gray levels. At cuts the mean change was 23 levels or more; by movement in a quarter of a second, 15 in one case of
ten."""
SAME_PLACE = 0.95
"""Likeness of two pictures of one place in different light, at least."""
LETTER_LEVELS, LINE, INNER_SHARE = 30, 5, 0.6
"""Gray levels by which letters differ from their background; a change is a title if less of it than a share remains
after erosion by a square of so many pixels. The share grows with that of the most common gray level, since figures
are neither thin nor of one colour."""
HISTOGRAM = ([0, 1, 2], None, [12, 4, 8], [0, 180, 0, 256, 0, 256])
"""Channels, mask, bins and ranges of a hue-saturation-value histogram: most bins for hue, fewest for saturation."""


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


@dataclass(frozen=True)
class _Change:
    """A detected change, not judged yet; frames are counted from the first one added."""

    before: int
    frame: int
    after: int
    kind: TransitionKind

    def overlaps(self, other: _Change) -> bool:
        return self.before < other.after and other.before < self.after

    def joined(self, other: _Change) -> _Change:
        """Merge two overlapping changes: the frame of the longer one, the kind of the more gradual one."""
        longer = max(self, other, key=lambda change: change.after - change.before)
        kind = max(self.kind, other.kind, key=KINDS.index)
        return _Change(min(self.before, other.before), longer.frame, max(self.after, other.after), kind)


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
        self._fps = float(fps)  # FrameTimecode rejects integers
        self._short = max(1, round(settings.min_scene_seconds * fps))
        self._longest = max(8, round(ROOM * settings.transition_seconds * fps))
        self._sure = _detector(settings, settings.adaptive_threshold)
        self._likely = _detector(settings, settings.moving_threshold, self._sure)
        self._gradual = GradualFinder(self._longest, settings.dissolve_change, settings.dissolve_misfit)
        detector_delay = LONGEST_HOLD * settings.adaptive_window
        self.lag = self._longest + max(detector_delay, self._gradual.delay) + 2 * self._short + 1
        self._ahead: deque[_Picture] = deque()
        self._seen: deque[_Picture] = deque(maxlen=self.lag + 2)
        self._steady: deque[_Picture] = deque(maxlen=self.lag + 2)
        self._count = 0
        self._drawing_HW: np.ndarray | None = None
        self._drawing_age = 0
        self._pending: list[_Change] = []
        self._judged_to = 0

    def add(self, ordinal: int, seconds: float, small_bgr_HWC: np.ndarray) -> list[Boundary]:
        """Take the next frame and return the boundaries that it makes final, in order.

        Args:
            ordinal: number of the frame in presentation order.
            seconds: its presentation time.
            small_bgr_HWC: the frame scaled down to `detect_width`, uint8 BGR; it is buffered, not copied.
        """
        gray_HW = cv2.cvtColor(small_bgr_HWC, cv2.COLOR_BGR2GRAY)
        self._ahead.append(_Picture(ordinal, seconds, small_bgr_HWC, gray_HW, tiny_gray(gray_HW)))
        if len(self._ahead) > self._short:
            self._take()
        return list(self._judge_until(self._count - 1 - self.lag + self._short))

    def finish(self) -> list[Boundary]:
        """End the film and return the boundaries still pending."""
        while self._ahead:
            self._take()
        if self._steady:
            for _ in range(self._settings.adaptive_window):
                self._detect(self._steady[-1].small_bgr_HWC)
        return list(self._judge_until(self._count))

    def _take(self) -> None:
        """Pass the next frame to the detectors, or the one before it in place of a flash."""
        seen = self._ahead.popleft()
        steady = self._steady[-1] if self._steady and self._is_flash(seen) else seen
        self._seen.append(seen)
        self._steady.append(steady)
        self._count += 1
        if self._is_new_drawing(steady.gray_HW):
            # The first drawing is repeated as its own neighbours, so that a cut right after it can be detected.
            for _ in range(1 if self._count > 1 else 1 + self._settings.adaptive_window):
                self._detect(steady.small_bgr_HWC)
        for gradual in self._gradual.add(steady.tiny_P):
            change = _Change(gradual.last_clean_before, gradual.middle, gradual.first_clean_after, gradual.kind)
            if change.kind != "dissolve" or not (self._is_title(change) or self._is_light_beside_cut(change)):
                self._enqueue(change)

    def _is_flash(self, seen: _Picture) -> bool:
        """Return true if the picture before this one returns within the frames ahead."""
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
                self._enqueue(_Change(frame - 1, frame, frame, "cut"))

    def _is_cut(self, frame: int, sure: bool) -> bool:
        """Return true if enough of the picture is new at this frame and, unless the score is high, its colours too."""
        old_HWC, new_HWC = self._shown(frame - 1).small_bgr_HWC, self._shown(frame).small_bgr_HWC
        changed_HW = cv2.absdiff(old_HWC, new_HWC).max(axis=2) > CHANGED_PIXEL
        if changed_HW.mean() < self._settings.changed_share:
            return False
        return sure or float(np.minimum(_colours(old_HWC), _colours(new_HWC)).sum()) < self._settings.colour_overlap

    def _is_light_beside_cut(self, change: _Change) -> bool:
        """Return true if a cut lies within the change, and only the light changes before or after that cut."""
        cuts = [cut for cut in self._pending if cut.kind == "cut" and change.before <= cut.before < change.after - 1]
        return any(self._is_alike(cut.after, change.after) or self._is_alike(change.before, cut.before) for cut in cuts)

    def _is_alike(self, frame: int, later: int) -> bool:
        old_P, new_P = self._shown(frame).tiny_P, self._shown(later).tiny_P
        return later - frame > 1 and likeness_of(old_P, new_P, np.abs(new_P - old_P) > FLASH_LEVELS) > SAME_PLACE

    def _is_title(self, change: _Change) -> bool:
        """Return true if lines of one colour appear or vanish: letters that fade in or out."""
        pair = [self._shown(frame).gray_HW for frame in (change.before, change.after)]
        changed_HW = cv2.absdiff(*pair) > LETTER_LEVELS
        inner_HW = cv2.erode(changed_HW.astype(np.uint8), np.ones((LINE, LINE), np.uint8))
        uniform = max(_share_of_one_colour(gray_HW[changed_HW]) for gray_HW in pair)
        return bool(inner_HW.sum() < INNER_SHARE * uniform**1.5 * changed_HW.sum())

    def _enqueue(self, change: _Change) -> None:
        """Queue a change, merged with those it overlaps; ignore one that begins within a change already judged."""
        if change.before < self._judged_to:
            return
        for other in [other for other in self._pending if other.overlaps(change)]:
            self._pending.remove(other)
            change = change.joined(other)
        self._pending.append(change)

    def _judge_until(self, until: int) -> Iterator[Boundary]:
        """Judge the changes that begin up to `until`, and yield their boundaries."""
        self._pending.sort(key=lambda change: change.before)
        while self._pending and self._pending[0].before <= until:
            group = [self._pending.pop(0)]
            reach = group[0].before + self._longest
            while self._pending and self._is_close(group[-1], self._pending[0]) and self._pending[0].before <= reach:
                group.append(self._pending.pop(0))
            self._judged_to = group[-1].after
            cut = self._judge(group)
            if cut:
                yield cut

    def _is_close(self, one: _Change, following: _Change) -> bool:
        """Return true if the frames between two changes are too few for a scene."""
        return following.before - one.after + 1 < self._short

    def _judge(self, group: Sequence[_Change]) -> Boundary | None:
        """Return changes in quick succession as one boundary, or None if they lead back to the first picture."""
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

    def _at(self, frame: int) -> _Picture:
        """Return a frame as it is in the film."""
        return self._seen[frame - self._count]

    def _shown(self, frame: int) -> _Picture:
        """Return a frame as passed to the detectors: without flashes."""
        return self._steady[frame - self._count]


def _is_back(old_P: np.ndarray, new_P: np.ndarray, change: float) -> bool:
    """Return true if a picture equals an old one again, after a change by `change` gray levels."""
    return mean_change(old_P, new_P) < min(SAME_LEVELS, SAME_SHARE * change)


def _share_of_one_colour(levels: np.ndarray) -> float:
    """Return the share of pixels within the most common 16 of 256 gray levels; 0 of no pixels."""
    counts = np.histogram(levels, bins=32, range=(0, 256))[0]
    return float((counts[:-1] + counts[1:]).max() / max(levels.size, 1))


class _ScoreOf(AdaptiveDetector):  # type: ignore[misc]
    """A detector that uses the frame scores of another one, fed first: scoring is most of the work."""

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
    """Colour histogram of the picture, as the share of pixels in each bin."""
    channels, mask, bins, ranges = HISTOGRAM
    counts = cv2.calcHist([cv2.cvtColor(bgr_HWC, cv2.COLOR_BGR2HSV)], channels, mask, bins, ranges)
    shares: np.ndarray = counts / counts.sum()
    return shares
