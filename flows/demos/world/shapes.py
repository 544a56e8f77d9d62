"""Textured figures that move over textured grounds by known amounts, painted; for tests of what training can learn.

A figure keeps one direction and one speed for the whole clip; what leaves the picture on one side enters it on the
other. So any speed fits into any number of frames, and the clip's motion scope is the figure's speed. Everything is
painted twice as large and averaged down: shifts by whole pixels there are exact steps of half a pixel.

Letters of the shapes: T frames, H W pixels, C colours (BGR).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]

FRAMES = 17
WIDTH, HEIGHT = 96, 64
SPEEDS = (0.5, 1.5, 2.5, 4.0, 6.0)
"""Pixels a frame, for motion level 1 to 5; multiples of a half."""
_FINE = 2
_FIGURE = (40, 44)
"""Width and height of a figure, pixels."""


@dataclass(frozen=True)
class Deed:
    """A movement: where to, and what it does to the one who moves."""

    towards: tuple[int, int]
    """Right and down: 1, 0 or -1."""
    social: Literal[0, 1]
    entertainment: Literal[0, 1]
    stamina: Literal[-1, 1]


DEEDS = {
    "go for a walk": Deed((1, 0), social=0, entertainment=0, stamina=-1),
    "visit a friend": Deed((-1, 0), social=1, entertainment=0, stamina=-1),
    "float up": Deed((0, -1), social=0, entertainment=1, stamina=1),
    "dive down": Deed((0, 1), social=1, entertainment=1, stamina=-1),
}
FIGURES = {"Ruby": (60, 60, 225), "Sunny": (40, 205, 240), "Azura": (225, 110, 50)}
"""Name and colour: a disc, a diamond and a square."""
PLACES = {"meadow": (90, 165, 95), "desert": (135, 190, 215), "night sea": (95, 60, 45)}


@dataclass(frozen=True)
class ShapeClip:
    """What is to be seen in one clip."""

    figure: str
    deed: str
    place: str
    level: int
    """1 to 5: how fast, see `SPEEDS`."""

    @property
    def speed(self) -> float:
        """Pixels a frame."""
        return SPEEDS[self.level - 1]


def paint(clip: ShapeClip) -> Picture:
    """The frames [T, H, W, C] of a clip, uint8 BGR; its first frame does not depend on deed and level."""
    ground_HWC = _textured(PLACES[clip.place], seed=list(PLACES).index(clip.place))
    skin_HWC, mask_HW = _figure(clip.figure)
    across, down = DEEDS[clip.deed].towards
    frames = []
    for frame in range(FRAMES):
        shift = round(_FINE * clip.speed * frame)
        moved = {"shift": (shift * down, shift * across), "axis": (0, 1)}
        seen_HW1 = np.roll(mask_HW, **moved)[..., None]
        picture_HWC = np.where(seen_HW1, np.roll(skin_HWC, **moved), ground_HWC)
        frames.append(cv2.resize(picture_HWC, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA))
    return np.stack(frames).astype(np.uint8)


@cache
def _textured(colour: tuple[int, int, int], seed: int) -> Picture:
    """A ground in shades of a colour, with detail of two sizes."""
    random = np.random.default_rng(seed)
    shape = (_FINE * HEIGHT, _FINE * WIDTH)
    shade_HW = np.ones(shape, np.float32)
    for period, strength in ((8, 0.10), (24, 0.15)):
        coarse = random.standard_normal([side // (_FINE * period) + 2 for side in shape]).astype(np.float32)
        shade_HW += strength * cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)
    return np.clip(shade_HW[..., None] * colour, 0, 255).astype(np.uint8)


@cache
def _figure(name: str) -> tuple[Picture, NDArray[np.bool_]]:
    """A figure's picture with bold stripes and an outline, and where it is, in the middle of the canvas."""
    number = list(FIGURES).index(name)
    height, width = _FINE * HEIGHT, _FINE * WIDTH
    skin_HWC = _textured(FIGURES[name], seed=100 + number)
    middle, (reach_x, reach_y) = (width // 2, height // 2), (_FINE * _FIGURE[0] // 2, _FINE * _FIGURE[1] // 2)
    rows_HW, columns_HW = np.mgrid[0:height, 0:width]
    stripes_HW = (rows_HW * (number != 1) + columns_HW * (number != 0)) // (_FINE * 10) % 2 == 0
    skin_HWC = np.where(stripes_HW[..., None], skin_HWC, skin_HWC // 4)
    across_HW, down_HW = abs(columns_HW - middle[0]) / reach_x, abs(rows_HW - middle[1]) / reach_y
    distance_HW = (np.hypot(across_HW, down_HW), across_HW + down_HW, np.maximum(across_HW, down_HW))[number]
    outline_HW = (distance_HW > 0.9) & (distance_HW <= 1)
    return np.where(outline_HW[..., None], np.uint8(20), skin_HWC), distance_HW <= 1
