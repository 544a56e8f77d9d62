"""Appearance of a picture without weights: an embedding of its colours and edges by place, and its hash.

    appearance = (sqrt h_1 .. sqrt h_9, sqrt e_1 .. sqrt e_9)        of a grid of 3 x 3 cells

h_i are the shares of a cell's pixels in 64 colours (4 levels of each channel), and e_i the shares of its edges in 8
directions, weighted by their strength and by EDGES. With square roots the dot product of two cells is their
Bhattacharyya coefficient, so that equal appearances have similarity 1 and pictures without a common colour or edge 0.

The hash squeezes the picture to 17 x 16 grey pixels. It has a bit for each two neighbours, set if the right one is
lighter. Scaling and coding change few bits of a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from training.evaluation.metrics.networks import Embeddings, Picture

GRID, SIDE = 3, 96
EDGES = 0.25
"""Weight of the edges relative to the colours."""
COPY_BITS = 26
"""Most different bits of two pictures that are the same picture: a tenth. Unrelated pictures differ in about half."""


class Appearance:
    """Colours and edges as a network of pictures."""

    identity = "appearance-1"
    is_untrained = False

    def embed(self, pictures: Sequence[Picture]) -> Embeddings:
        """Embed pictures of any sizes."""
        rows = np.stack([_described(picture) for picture in pictures])
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / lengths, np.float32)


def _described(picture_HWC: Picture) -> NDArray[np.float64]:
    small = cv2.resize(picture_HWC, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    across, down = (cv2.Sobel(gray, cv2.CV_32F, *step) for step in ((1, 0), (0, 1)))
    strength_HW = np.hypot(across, down)
    directions_HW = np.floor(np.arctan2(down, across) / (2 * np.pi) * 8).astype(int) % 8
    colours_HW = (small // 64).astype(int) @ np.array((16, 4, 1))
    cells_HW = np.add.outer(np.arange(SIDE) * GRID // SIDE * GRID, np.arange(SIDE) * GRID // SIDE)
    colours = np.bincount((cells_HW * 64 + colours_HW).ravel(), minlength=GRID**2 * 64)
    edges = np.bincount((cells_HW * 8 + directions_HW).ravel(), strength_HW.ravel(), minlength=GRID**2 * 8)
    shares = edges / max(edges.sum(), 1e-9)
    return np.concatenate([np.sqrt(colours / SIDE**2), np.sqrt(EDGES * shares)])


def hashes_of(pictures: Sequence[Picture]) -> NDArray[np.uint8]:
    """Hashes of pictures, [N, 32] bytes of 8 bits."""
    grays = [cv2.cvtColor(cv2.resize(each, (17, 16), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
             for each in pictures]  # fmt: skip
    return np.stack([np.packbits(gray[:, 1:] > gray[:, :-1]) for gray in grays])


def different_bits(hashes_NB: NDArray[np.uint8], others_MB: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Number of bits in which each hash differs from each other one, [N, M]."""
    differences = hashes_NB[:, None] ^ others_MB[None]
    return np.asarray(np.unpackbits(differences, axis=-1).sum(axis=-1), np.int64)
