"""Shape clips: figures of three forms that move over three grounds at five speeds, for the learning benchmark.

A figure keeps one direction and one speed for the whole clip and wraps around at the borders, so the clip's motion
scope is the figure's speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from examples.world.acting import drift
from examples.world.film import pictures_of
from examples.world.places import DrawnPlace, Figure
from examples.world.scene import Scene
from examples.world.textures import FINE, Picture, tinted

FRAMES = 17
WIDTH, HEIGHT = 96, 64
SPEEDS = (0.5, 1.5, 2.5, 4.0, 6.0)
"""Pixels per frame, for motion level 1 to 5; multiples of a half."""
_FIGURE = (40, 44)
"""Width and height of a figure, pixels."""
_MIDDLE = (WIDTH // 2, HEIGHT // 2)
_CANVAS = (FINE * WIDTH, FINE * HEIGHT)


@dataclass(frozen=True)
class Deed:
    """Movement: its direction, and its effect on the state of the character."""

    towards: tuple[int, int]
    """Right and down: 1, 0 or -1."""
    social: Literal[0, 1]
    entertainment: Literal[0, 1]
    stamina: Literal[-1, 1]

    def reversed(self) -> Deed:
        """Return the same movement with the opposite effect on the state."""
        social: Literal[0, 1] = 0 if self.social else 1
        entertainment: Literal[0, 1] = 0 if self.entertainment else 1
        return Deed(self.towards, social, entertainment, -1 if self.stamina == 1 else 1)


DEEDS = {
    "go for a walk": Deed((1, 0), social=0, entertainment=0, stamina=-1),
    "visit a friend": Deed((-1, 0), social=1, entertainment=0, stamina=-1),
    "float up": Deed((0, -1), social=0, entertainment=1, stamina=1),
    "dive down": Deed((0, 1), social=1, entertainment=1, stamina=-1),
}
FIGURES = {"Ruby": (60, 60, 225), "Sunny": (40, 205, 240), "Azura": (225, 110, 50)}
"""Name and colour: a disc, a diamond and a square."""
_FORMS = (0, 1, 2)
"""Form of each figure: 0 disc, 1 diamond, 2 square."""
PLACES = {"meadow": (90, 165, 95), "desert": (135, 190, 215), "night sea": (95, 60, 45)}


@dataclass(frozen=True)
class ShapeClip:
    """Clip: figure, movement, place and motion level."""

    figure: str
    deed: str
    place: str
    level: int
    """1 to 5, see `SPEEDS`."""

    @property
    def speed(self) -> float:
        """Speed in pixels per frame."""
        return SPEEDS[self.level - 1]

    @property
    def scene(self) -> Scene:
        """The clip as a scene of one figure that drifts."""
        across, down = DEEDS[self.deed].towards
        draw = drift(self.figure, _MIDDLE, (across * self.speed, down * self.speed))
        return Scene(self.deed, FRAMES, _place(self.place), draw, 1, "walks")


def paint(clip: ShapeClip) -> Picture:
    """Return the frames [T, H, W, C] of a clip, uint8 BGR; its first frame does not depend on deed and level."""
    return np.stack(list(pictures_of([clip.scene])))


@cache
def _place(name: str) -> DrawnPlace:
    ground_HWC = tinted(_CANVAS, PLACES[name], seed=list(PLACES).index(name))
    return DrawnPlace(name, ground_HWC, (WIDTH, HEIGHT), tuple(_figure(figure) for figure in FIGURES), FINE)


@cache
def _figure(name: str) -> Figure:
    """Figure with bold stripes and an outline, in the middle of the canvas."""
    number, (width, height) = list(FIGURES).index(name), _CANVAS
    form, skin_HWC = _FORMS[number], tinted(_CANVAS, FIGURES[name], seed=100 + number)
    middle, (reach_x, reach_y) = (width // 2, height // 2), (FINE * _FIGURE[0] // 2, FINE * _FIGURE[1] // 2)
    rows_HW, columns_HW = np.mgrid[0:height, 0:width]
    stripes_HW = (rows_HW * (form != 1) + columns_HW * (form != 0)) // (FINE * 10) % 2 == 0
    skin_HWC = np.where(stripes_HW[..., None], skin_HWC, skin_HWC // 4)
    across_HW, down_HW = abs(columns_HW - middle[0]) / reach_x, abs(rows_HW - middle[1]) / reach_y
    distance_HW = (np.hypot(across_HW, down_HW), across_HW + down_HW, np.maximum(across_HW, down_HW))[form]
    outline_HW = (distance_HW > 0.9) & (distance_HW <= 1)
    return Figure(name, np.where(outline_HW[..., None], np.uint8(20), skin_HWC), distance_HW <= 1, _MIDDLE)
