"""Perceptual hashes of a film's pictures at a fixed rate, by which the episodes of a series are compared."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

import cv2
import numpy as np

from pipeline.core.records import Crop, HashedPicture
from pipeline.stages.duplicates import frame_hash
from pipeline.video.scaling import Geometry, crop_at

RATE = 4
"""Pictures a second: the first one that begins in each quarter of a second."""


class FilmHasher:
    """Hashes of the picture inside the borders, from the small pictures of the scene detector.

    Args:
        crops: crops of the film, in order of time.
        whole: what the small pictures show.
    """

    def __init__(self, crops: Sequence[Crop], whole: Geometry) -> None:
        self._crops, self._whole = crops, whole
        self._quarter = -1
        self.rows: list[HashedPicture] = []

    def add(self, seconds: float, small_bgr_HWC: np.ndarray) -> None:
        """Take the next frame, and hash it if none before it began in its quarter of a second."""
        quarter = floor(seconds * RATE + 1e-3)  # times may be rounded to milliseconds
        if quarter > self._quarter:
            self._quarter = quarter
            gray_HW = cv2.cvtColor(self._inside(seconds, small_bgr_HWC), cv2.COLOR_BGR2GRAY)
            self.rows.append(HashedPicture(seconds=seconds, hash=frame_hash(gray_HW.astype(np.uint8, copy=False))))

    def _inside(self, seconds: float, small_HWC: np.ndarray) -> np.ndarray:
        crop, whole = crop_at(self._crops, seconds), self._whole
        across, down = small_HWC.shape[1] / whole.width, small_HWC.shape[0] / whole.height
        left, top = round((crop.left - whole.left) * across), round((crop.top - whole.top) * down)
        right, bottom = left + max(1, round(crop.width * across)), top + max(1, round(crop.height * down))
        return np.ascontiguousarray(small_HWC[top:bottom, left:right])
