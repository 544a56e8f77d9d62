"""Textures of places and figures: the detail of a painted background, a cel of outlined shapes, soft colours.

The same seed gives the same picture. Letters of the shapes: H W pixels, C colours (BGR).
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
PictureSize = tuple[int, int]
"""Width and height, pixels."""
FINE = 2
"""Factor by which pictures are drawn larger and averaged down, so that steps of half a pixel are exact."""


def tinted(size: PictureSize, colour: Sequence[int], seed: int) -> Picture:
    """Return shades of one colour, with detail of two sizes."""
    relief_HW = _relief(size, 1, ((8, 0.10), (24, 0.15)), seed)
    return np.clip(relief_HW[..., None] * colour, 0, 255).astype(np.uint8)


def detailed(size: PictureSize, seed: int) -> Picture:
    """Return detail of every size, like a painted background."""
    return _coloured(np.clip(_relief(size, 128, ((4, 12), (12, 20), (48, 30), (160, 30)), seed), 0, 255))


def cel(size: PictureSize, seed: int) -> Picture:
    """Return outlined shapes in flat colours before a gradient."""
    random, (width, height) = np.random.default_rng(seed), size
    cel_HWC = _coloured(np.tile(np.linspace(120, 220, height, dtype=np.float32)[:, None], (1, width)))
    for _ in range(200):
        centre = [int(random.integers(side)) for side in size]
        axes = [int(side) for side in random.integers(10 * FINE, 120 * FINE, 2)]
        colour, angle = random.integers(30, 240, 3).tolist(), float(random.integers(180))
        cv2.ellipse(cel_HWC, centre, axes, angle, 0, 360, colour, cv2.FILLED, cv2.LINE_AA)
        cv2.ellipse(cel_HWC, centre, axes, angle, 0, 360, (25, 20, 20), 2 * FINE, cv2.LINE_AA)
    return cel_HWC


def soft(size: PictureSize, seed: int) -> Picture:
    """Return broad patches of colour, none as green as the bars of a barcode."""
    patches_HWC = np.random.default_rng(seed).integers(30, 226, (5, 8, 3), dtype=np.uint8)
    blue_HW, green_HW, red_HW = np.moveaxis(patches_HWC, -1, 0)
    patches_HWC[..., 1] = np.minimum(green_HW, np.maximum(blue_HW, red_HW))
    return np.asarray(cv2.resize(patches_HWC, size, interpolation=cv2.INTER_CUBIC), np.uint8)


def _relief(size: PictureSize, base: float, layers: Sequence[tuple[int, float]], seed: int) -> NDArray[np.float32]:
    """Return `base` with smooth noise; each layer has a period in pixels of the film, and a strength."""
    random, shape = np.random.default_rng(seed), size[::-1]
    relief_HW = np.full(shape, base, np.float32)
    for period, strength in layers:
        coarse_HW = random.standard_normal([side // (FINE * period) + 2 for side in shape]).astype(np.float32)
        relief_HW += strength * cv2.resize(coarse_HW, size, interpolation=cv2.INTER_CUBIC)
    return relief_HW


def _coloured(luma_HW: NDArray[np.float32]) -> Picture:
    return np.stack([luma_HW * share for share in (0.9, 1.0, 0.8)], axis=-1).astype(np.uint8)
