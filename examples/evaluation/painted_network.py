"""Painted network: a stand-in for CLIP and DreamSim that knows the figures and places of the shapes, and nothing else.

    knowledge (f, p) = W appearance(picture)      f: a value per figure, p: a value per place
    embedding        = (f / |f|, p / |p|) / sqrt 2

W is fitted by least squares with a ridge to painted pictures with known content. The embedding of a text has 1 at the
figures and places that the text names, so it has similarity 1 to a picture of exactly these.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from examples.world.shapes import DEEDS, FIGURES, PLACES, ShapeClip, paint
from training.evaluation.metrics.appearance import Appearance
from training.evaluation.metrics.networks import Embeddings, Picture

_NAMES = (*FIGURES, *PLACES)
_RIDGE = 0.1


class PaintedNetwork:
    """Embeddings of painted pictures and of instructions by the figures and places in them."""

    identity = "painted-1"
    is_untrained = False

    def embed(self, pictures: Sequence[Picture]) -> Embeddings:
        """Embed pictures of any sizes."""
        return _embedding(Appearance().embed(pictures).astype(np.float64) @ _fitted())

    def embed_texts(self, texts: Sequence[str]) -> Embeddings:
        """Embed instructions or their parts."""
        return _embedding(np.array([[float(name in text) for name in _NAMES] for text in texts]))


def _embedding(known_NK: NDArray[np.float64]) -> Embeddings:
    parts = np.split(known_NK, [len(FIGURES)], axis=1)
    halves = [part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-9) for part in parts]
    whole_NK = np.concatenate(halves, axis=1)
    return np.asarray(whole_NK / np.maximum(np.linalg.norm(whole_NK, axis=1, keepdims=True), 1e-9), np.float32)


@cache
def _fitted() -> NDArray[np.float64]:
    """Fit W to pictures of every figure at every place, in every direction at two speeds."""
    rows, known = [], []
    for figure in FIGURES:
        for place in PLACES:
            for deed in DEEDS:
                for level in (3, 5):
                    pictures = list(paint(ShapeClip(figure, deed, place, level))[::3, :, :, ::-1])
                    rows.append(Appearance().embed(pictures).astype(np.float64))
                    known += [[float(name in (figure, place)) for name in _NAMES]] * len(pictures)
    appearance_ND = np.concatenate(rows)
    ridge_DD = _RIDGE * np.eye(appearance_ND.shape[1])
    return np.asarray(np.linalg.solve(appearance_ND.T @ appearance_ND + ridge_DD, appearance_ND.T @ np.array(known)))
