"""Scores of transitions by a small network: for each frame, is it a mix of two scenes, and does a new scene begin.

The network (`transitions.onnx`, 1.8 MB) has TransNet V2's shape (Souček and Lokoč, arXiv 2008.04838) with far fewer
weights. We trained it on transitions made between scenes of Big Buck Bunny, composed films and drawn cels:
`python -m benchmarks.transitions.train`; `docs/results/scenes.md` has the command and the results.

It runs on one thread, and its scores are rounded to 1/256, so a rerun on the same machine gives the same scores.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from pipeline.core.onnx_network import load_network

if TYPE_CHECKING:
    import onnxruntime

WIDTH, HEIGHT = 48, 27
"""Size of the network's pictures."""
STEP, LAG = 16, 59
"""Frames that enter the network at once, and frames by which its scores lag."""
_BESIDE = 4 * STEP
"""Repeats of the first picture before the film, so that the network sees a still scene there."""
_LEVELS = 256


class TransitionScorer:
    """Scorer of the pictures of a film, `STEP` at a time; the network's state holds what it saw before."""

    def __init__(self) -> None:
        self._session = _session()
        inputs = self._session.get_inputs()[1:]
        self._states = {one.name: np.zeros(one.shape, np.float32) for one in inputs}
        self._pictures: list[np.ndarray] = []
        self._last: np.ndarray | None = None
        self._unseen = _BESIDE + LAG
        """Scores to come of pictures before the film."""
        self._owed = 0

    def add(self, small_bgr_HWC: np.ndarray) -> np.ndarray:
        """Take the next picture; return the scores (T, 2) that are known by now, in order: mostly none."""
        picture_HWC = cv2.resize(small_bgr_HWC, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
        if self._last is None:
            for _ in range(_BESIDE):
                self._enter(picture_HWC)
        self._owed += 1
        return self._enter(picture_HWC)

    def finish(self) -> np.ndarray:
        """Return the scores still to come; the last picture stands in for those after it."""
        scores = [np.zeros((0, 2), np.float32)]
        while self._owed > 0 and self._last is not None:
            scores.append(self._enter(self._last))
        return np.concatenate(scores)

    def _enter(self, picture_HWC: np.ndarray) -> np.ndarray:
        self._last = picture_HWC
        self._pictures.append(picture_HWC)
        if len(self._pictures) < STEP:
            return np.zeros((0, 2), np.float32)
        pictures_THWC = np.stack(self._pictures).astype(np.float32)
        scores_TD, *states = self._session.run(None, {"pictures": pictures_THWC, **self._states})
        self._states = dict(zip(self._states, states, strict=True))
        self._pictures = []
        skipped = min(self._unseen, STEP)
        self._unseen -= skipped
        known_TD = scores_TD[skipped:][: self._owed]
        self._owed -= len(known_TD)
        rounded_TD: np.ndarray = np.round(known_TD * _LEVELS) / _LEVELS
        return rounded_TD


@cache
def _session() -> onnxruntime.InferenceSession:
    return load_network(Path(__file__).with_name("transitions.onnx").read_bytes())
