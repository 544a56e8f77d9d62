"""Detector of hard cuts by PySceneDetect's AdaptiveDetector, fed with drawings instead of frames.

The detector compares the change at a picture with the change at its neighbours. Three cases need special treatment:

* Holds. Drawings are held for two, three or many frames. The change within a hold is zero, so any new drawing next to
  it looks like a cut. The detector therefore gets drawings, not frames: a picture that repeats the last is skipped.
* Poses. Next to a hold even a character's new pose stands out. A cut changes the background too, so a least share of
  the pixels must change (at every agreed cut of Big Buck Bunny 78 % or more do).
* Pans. During a fast pan the neighbours change so much that a cut hardly stands out. A lower threshold is enough there
  if the colours change as well, which a pan does not do.
"""

from __future__ import annotations

import cv2
import numpy as np
from scenedetect.common import FrameTimecode
from scenedetect.detectors import AdaptiveDetector

from pipeline.core.config import SceneSettings
from pipeline.stages import scene_thresholds as limits

HISTOGRAM = ([0, 1, 2], None, [12, 4, 8], [0, 180, 0, 256, 0, 256])
"""Channels, mask, bins and ranges of a hue-saturation-value histogram: most bins for hue, fewest for saturation."""


class CutFinder:
    """Detector of candidates for hard cuts, in frames counted from the first one added; `fps` is the nominal rate."""

    def __init__(self, settings: SceneSettings, fps: float) -> None:
        self._settings = settings
        self._fps = float(fps)  # FrameTimecode rejects integers
        self._sure = _detector(settings, settings.adaptive_threshold)
        self._likely = _detector(settings, settings.moving_threshold)
        self._hsv_HWC: np.ndarray | None = None
        self._frame = -1
        self._drawing_HW: np.ndarray | None = None
        self._drawing_age = 0

    @property
    def delay(self) -> int:
        """Most frames between a cut and its report."""
        return limits.LONGEST_HOLD * self._settings.adaptive_window

    def add(self, small_bgr_HWC: np.ndarray, gray_HW: np.ndarray) -> dict[int, bool]:
        """Take the next frame; return candidates, each the first frame after a cut and true for a high score."""
        self._frame += 1
        if not self._is_new_drawing(gray_HW):
            return {}
        # The first drawing is repeated as its own neighbours, so that a cut right after it can be detected.
        return self._detect(small_bgr_HWC, times=1 if self._frame else 1 + self._settings.adaptive_window)

    def finish(self, small_bgr_HWC: np.ndarray) -> dict[int, bool]:
        """Return the candidates still pending, given the last frame."""
        return self._detect(small_bgr_HWC, times=self._settings.adaptive_window)

    def is_cut(self, old_HWC: np.ndarray, new_HWC: np.ndarray, is_sure: bool) -> bool:
        """Return true if most of the picture is new and, unless the score is high, its colours too."""
        changed_HW = cv2.absdiff(old_HWC, new_HWC).max(axis=2) > limits.CHANGED_PIXEL
        if changed_HW.mean() < self._settings.changed_share:
            return False
        return is_sure or float(np.minimum(_colours(old_HWC), _colours(new_HWC)).sum()) < self._settings.colour_overlap

    def _is_new_drawing(self, gray_HW: np.ndarray) -> bool:
        self._drawing_age += 1
        last_HW = self._drawing_HW  # whole frames of uint8: `mean_change` is for tiny ones of float32
        held = last_HW is not None and cv2.norm(gray_HW, last_HW, cv2.NORM_L1) < limits.SAME_DRAWING * gray_HW.size
        if held and self._drawing_age < limits.LONGEST_HOLD:
            return False
        self._drawing_HW = gray_HW
        self._drawing_age = 0
        return True

    def _detect(self, small_bgr_HWC: np.ndarray, times: int) -> dict[int, bool]:
        found: dict[int, bool] = {}
        hsv_HWC = cv2.cvtColor(small_bgr_HWC, cv2.COLOR_BGR2HSV)
        for _ in range(times):
            self._sure.score = self._likely.score = 0.0 if self._hsv_HWC is None else _score(self._hsv_HWC, hsv_HWC)
            self._hsv_HWC = hsv_HWC
            now = FrameTimecode(self._frame, self._fps)
            sure = {int(at.frame_num) for at in self._sure.process_frame(now, small_bgr_HWC)}
            likely = {int(at.frame_num) for at in self._likely.process_frame(now, small_bgr_HWC)}
            found |= {frame: frame in sure for frame in sorted(sure | likely) if frame > 0}
        return found


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
