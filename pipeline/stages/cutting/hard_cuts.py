"""Detector of hard cuts by PySceneDetect's AdaptiveDetector, fed with drawings instead of frames.

The detector compares the change at a picture with the change at its neighbours. Four cases need special treatment:

* Flashes. A flash is two cuts to the detector, and hides a cut nearby. A picture after which the one before it returns
  within `min_scene_seconds` is replaced by that one; for this the detector runs slightly behind the film.
* Holds. Drawings are held for two, three or many frames. The change within a hold is zero, so any new drawing next to
  it looks like a cut. The detector therefore gets drawings, not frames: a picture that repeats the last is skipped.
* Poses. Next to a hold even a character's new pose stands out. A cut changes the background too, so a least share of
  the pixels must change (at every agreed cut of Big Buck Bunny 78% or more do).
* Pans. During a fast pan the neighbours change so much that a cut hardly stands out. A lower threshold is enough there
  if the colours change as well, which a pan does not do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from scenedetect.common import FrameTimecode
from scenedetect.detectors import AdaptiveDetector

from pipeline.core.config import SceneSettings
from pipeline.stages.same_scene import mean_change

HISTOGRAM = ([0, 1, 2], None, [12, 4, 8], [0, 180, 0, 256, 0, 256])
"""Channels, mask, bins and ranges of a hue-saturation-value histogram: most bins for hue, fewest for saturation."""
SAME_DRAWING = 0.5
"""Largest mean change of a held drawing by the encoder, gray levels."""
LONGEST_HOLD = 6
"""Frames. The detector gets a drawing that is held longer again, which bounds its delay."""
CHANGED_PIXEL = 10
"""A pixel has changed at a cut if any of its channels differs by more levels than this."""
FLASH_LEVELS = 8
"""Least mean difference of a flash from the picture before it, gray levels."""
SAME_SHARE, SAME_LEVELS = 0.3, 15
"""A picture has returned after a flash if it differs by less than this share of the flash and by fewer than this many
gray levels. At cuts the mean change was 23 levels or more; by movement in a quarter of a second, 15 in one case of
ten."""


@dataclass(frozen=True)
class _Picture:
    small_bgr_HWC: np.ndarray
    gray_HW: np.ndarray
    tiny_P: np.ndarray


class CutFinder:
    """Detector of hard cuts, in frames counted from the first one added.

    Args:
        settings: the section `scenes` of the configuration.
        fps: nominal rate.

    Attributes:
        delay: most frames between a cut and its report.
    """

    def __init__(self, settings: SceneSettings, fps: float) -> None:
        self._settings = settings
        self._fps = float(fps)  # FrameTimecode rejects integers
        self._short = max(1, round(settings.min_scene_seconds * fps))
        self.delay = LONGEST_HOLD * settings.adaptive_window + self._short
        self._sure = _detector(settings, settings.adaptive_threshold)
        self._likely = _detector(settings, settings.moving_threshold)
        self._ahead: deque[_Picture] = deque()
        self._steady: deque[_Picture] = deque(maxlen=self.delay + 2)
        """Last pictures without flashes."""
        self._frame = -1
        self._hsv_HWC: np.ndarray | None = None
        self._drawing_HW: np.ndarray | None = None
        self._drawing_age = 0

    def add(self, small_bgr_HWC: np.ndarray, gray_HW: np.ndarray, tiny_P: np.ndarray) -> list[int]:
        """Take the next frame, small in BGR and gray, and tiny; return the first frames after the cuts now known."""
        self._ahead.append(_Picture(small_bgr_HWC, gray_HW, tiny_P))
        return list(self._take()) if len(self._ahead) > self._short else []

    def finish(self) -> list[int]:
        """Return the cuts still pending."""
        found: list[int] = []
        while self._ahead:
            found += self._take()
        if self._steady:
            found += self._detect(self._steady[-1].small_bgr_HWC, times=self._settings.adaptive_window)
        return found

    def _take(self) -> Iterator[int]:
        seen = self._ahead.popleft()
        steady = self._steady[-1] if self._steady and self._is_flash(seen) else seen
        self._steady.append(steady)
        self._frame += 1
        if self._is_new_drawing(steady.gray_HW):
            # The first drawing is repeated as its own neighbours, so that a cut right after it can be detected.
            times = 1 if self._frame else 1 + self._settings.adaptive_window
            yield from self._detect(steady.small_bgr_HWC, times)

    def _is_flash(self, seen: _Picture) -> bool:
        """Return true if the picture before this one returns within the frames ahead."""
        before_P = self._steady[-1].tiny_P
        change = mean_change(before_P, seen.tiny_P)
        same = min(SAME_LEVELS, SAME_SHARE * change)
        return change > FLASH_LEVELS and any(mean_change(before_P, later.tiny_P) < same for later in self._ahead)

    def _is_new_drawing(self, gray_HW: np.ndarray) -> bool:
        self._drawing_age += 1
        last_HW = self._drawing_HW
        held = last_HW is not None and cv2.norm(gray_HW, last_HW, cv2.NORM_L1) < SAME_DRAWING * gray_HW.size
        if held and self._drawing_age < LONGEST_HOLD:
            return False
        self._drawing_HW = gray_HW
        self._drawing_age = 0
        return True

    def _detect(self, small_bgr_HWC: np.ndarray, times: int) -> Iterator[int]:
        hsv_HWC = cv2.cvtColor(small_bgr_HWC, cv2.COLOR_BGR2HSV)
        for _ in range(times):
            self._sure.score = self._likely.score = 0.0 if self._hsv_HWC is None else _score(self._hsv_HWC, hsv_HWC)
            self._hsv_HWC = hsv_HWC
            now = FrameTimecode(self._frame, self._fps)
            sure = {int(at.frame_num) for at in self._sure.process_frame(now, small_bgr_HWC)}
            likely = {int(at.frame_num) for at in self._likely.process_frame(now, small_bgr_HWC)}
            for frame in sorted(sure | likely):
                if frame > 0 and self._is_cut(frame, frame in sure):
                    yield frame

    def _is_cut(self, frame: int, is_sure: bool) -> bool:
        """Return true if most of the picture is new and, unless the score is high, its colours too."""
        place = frame - self._frame - 1
        old_HWC, new_HWC = self._steady[place - 1].small_bgr_HWC, self._steady[place].small_bgr_HWC
        changed_HW = cv2.absdiff(old_HWC, new_HWC).max(axis=2) > CHANGED_PIXEL
        if changed_HW.mean() < self._settings.changed_share:
            return False
        return is_sure or float(np.minimum(_colours(old_HWC), _colours(new_HWC)).sum()) < self._settings.colour_overlap


class _ScoredDetector(AdaptiveDetector):  # type: ignore[misc]
    """A detector whose frame scores are given: two detectors share them, and by OpenCV they cost a third."""

    score = 0.0

    def _calculate_frame_score(self, timecode: FrameTimecode, frame_img: np.ndarray) -> float:  # noqa: ARG002
        return self.score


def _detector(settings: SceneSettings, threshold: float) -> _ScoredDetector:
    return _ScoredDetector(
        adaptive_threshold=threshold,
        min_scene_len=0,
        window_width=settings.adaptive_window,
        min_content_val=settings.min_content,
    )


def _score(old_hsv_HWC: np.ndarray, new_hsv_HWC: np.ndarray) -> float:
    """Return PySceneDetect's frame score: the mean change of hue, saturation and value."""
    sums = cv2.sumElems(cv2.absdiff(old_hsv_HWC, new_hsv_HWC))[:3]
    return sum(total / old_hsv_HWC[..., 0].size for total in sums) / 3


def _colours(bgr_HWC: np.ndarray) -> np.ndarray:
    """Colour histogram of the picture, as the share of pixels in each bin."""
    channels, mask, bins, ranges = HISTOGRAM
    counts = cv2.calcHist([cv2.cvtColor(bgr_HWC, cv2.COLOR_BGR2HSV)], channels, mask, bins, ranges)
    shares: np.ndarray = counts / counts.sum()
    return shares
