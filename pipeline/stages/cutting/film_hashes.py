"""Perceptual hashes of a film's pictures at a fixed rate, by which the episodes of a series are compared."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.records import Crop, HashedPicture
from pipeline.stages.duplicates import frame_hash
from pipeline.video.scaling import Geometry, crop_at

RATE = 8
"""Pictures a second: the first one that begins in each eighth of a second."""
_BATCH = 64
"""Pictures hashed at once: one by one, with a frame decoded in between, each takes three times as long."""
_ROUNDED_SECONDS = 1e-3
"""Largest error of times that a container rounds to milliseconds."""


class FilmHasher:
    """Hashes of the picture inside the borders, from the small pictures of the scene detector.

    Args:
        crops: crops of the film, in order of time.
        whole: what the small pictures show.
    """

    def __init__(self, crops: Sequence[Crop], whole: Geometry) -> None:
        self._crops, self._whole = crops, whole
        self._last = -1
        """Number of the last eighth of a second with a picture."""
        self._waiting: list[tuple[float, NDArray[np.uint8]]] = []
        self._rows: list[HashedPicture] = []

    def add(self, seconds: float, small_bgr_HWC: np.ndarray) -> None:
        """Take the next frame, which is hashed if no frame before it began in its eighth of a second."""
        number = floor((seconds + _ROUNDED_SECONDS) * RATE)
        if number > self._last:
            self._last = number
            self._waiting.append((seconds, self._inside(seconds, small_bgr_HWC).astype(np.uint8)))
            if len(self._waiting) >= _BATCH:
                self._hash()

    def finish(self) -> list[HashedPicture]:
        """Return the hashes of the whole film, in order of time."""
        self._hash()
        return self._rows

    def _hash(self) -> None:
        for seconds, inside_HWC in self._waiting:
            gray_HW = np.asarray(cv2.cvtColor(inside_HWC, cv2.COLOR_BGR2GRAY), np.uint8)
            self._rows.append(HashedPicture(seconds=seconds, hash=frame_hash(gray_HW)))
        self._waiting.clear()

    def _inside(self, seconds: float, small_HWC: np.ndarray) -> np.ndarray:
        crop, whole = crop_at(self._crops, seconds), self._whole
        across, down = small_HWC.shape[1] / whole.width, small_HWC.shape[0] / whole.height
        left, top = round((crop.left - whole.left) * across), round((crop.top - whole.top) * down)
        right, bottom = left + max(1, round(crop.width * across)), top + max(1, round(crop.height * down))
        return small_HWC[top:bottom, left:right]
