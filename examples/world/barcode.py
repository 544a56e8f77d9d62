"""Barcode: numbers painted into pictures, readable after scaling, cropping and lossy coding.

A barcode numbers the frames of a film: a stack of black and white cells in the middle of the picture between two green
bars. The number is Gray-coded, so that consecutive frames differ in one cell and a parity cell, too little for scene
detectors. Stripes number clips: they fill the width, and are readable in a quarter of a small JPEG.
"""

from __future__ import annotations

import numpy as np

from examples.world.textures import Picture

BITS = 14
CELLS = BITS + 1  # with a parity cell
GREEN = (0, 255, 0)
STRIPES = 6


def paint_barcode(picture_HWC: Picture, number: int) -> None:
    """Paint `number` (0..16383) into the middle of a picture of at least 64x48."""
    height, width = picture_HWC.shape[:2]
    code = number ^ (number >> 1)
    bits = [code >> bit & 1 for bit in range(BITS)]
    cells = [GREEN, *((255,) * 3 if bit else (0,) * 3 for bit in [*bits, sum(bits) % 2]), GREEN]
    rows = np.linspace(0.13 * height, 0.87 * height, len(cells) + 1).round().astype(int)
    columns = slice(round(0.4 * width), round(0.6 * width))
    picture_HWC[rows[0] - 1 : rows[-1] + 1, columns] = 0
    for cell, start, stop in zip(cells, rows[:-1], rows[1:], strict=True):
        picture_HWC[start:stop, columns] = cell


def read_barcode(picture_HWC: Picture) -> int:
    """Return the number in a BGR picture, after any scaling and centred cropping.

    Raises:
        ValueError: there is no barcode, or its parity is wrong.
    """
    width = picture_HWC.shape[1]
    middle = picture_HWC[:, round(0.47 * width) : max(round(0.53 * width), round(0.47 * width) + 1)].mean(axis=1)
    blue, green, red = middle[:, 0], middle[:, 1], middle[:, 2]
    bars = np.flatnonzero((green > 120) & (blue < 0.6 * green) & (red < 0.6 * green))
    breaks = np.flatnonzero(np.diff(bars) > 1)
    if len(breaks) == 0:
        raise ValueError("no barcode: the two green bars are missing")
    top, bottom = bars[0], bars[-1] + 1
    cell = (bottom - top) / (CELLS + 2)
    centres = (top + cell * (np.arange(CELLS) + 1.5)).astype(int)
    *bits, parity = (middle[centres].mean(axis=1) > 127).astype(int)
    if sum(bits) % 2 != parity:
        raise ValueError(f"unreadable barcode: parity of {bits}")
    number = code = sum(int(bit) << place for place, bit in enumerate(bits))
    while code := code >> 1:
        number ^= code
    return number


def paint_stripes(picture_HWC: Picture, number: int) -> None:
    """Paint `number` (0..63) as black and white stripes over the upper five eighths of a picture."""
    height, width = picture_HWC.shape[:2]
    for bit in range(STRIPES):
        columns = slice(bit * width // STRIPES, (bit + 1) * width // STRIPES)
        picture_HWC[: height * 5 // 8, columns] = 255 * (number >> bit & 1)


def read_stripes(picture_HWC: Picture) -> int:
    """Return the number in a picture painted with stripes."""
    height, width = picture_HWC.shape[:2]
    columns = [round((bit + 0.5) * width / STRIPES) for bit in range(STRIPES)]
    stripes = picture_HWC[height // 4, columns].mean(axis=1)
    return sum(int(stripe > 127) << bit for bit, stripe in enumerate(stripes))
