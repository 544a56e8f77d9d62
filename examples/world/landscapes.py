"""Drawn landscapes: skies, hills, houses and trees in flat colours, for any number of places.

Landscapes of one layout share horizon and colours; their clouds, hills, houses and trees follow from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from PIL import Image

from examples.world.paintings import WORLD_HEIGHT, WORLD_WIDTH, Backdrop, seen
from examples.world.scene import Box, Sprites, TimeOfDay
from examples.world.textures import Picture

Colour = tuple[int, int, int]
"""Red, green, blue."""
_OUTLINE: Colour = (30, 25, 30)


@dataclass(frozen=True)
class Landscape(Backdrop):
    """Drawn place; a sprite is positioned by its feet."""

    layout: int
    seed: int

    @property
    def name(self) -> str:
        """Name of the drawing."""
        return f"landscape {self.layout}-{self.seed}"

    @property
    def time_of_day(self) -> TimeOfDay | None:
        """None: the colours are arbitrary."""
        return None

    def picture(self, sprites: Sprites, box: Box) -> Picture:
        """Return the drawing with characters, as the camera sees it: BGR, HWC uint8.

        Raises:
            UserError: the art of the characters cannot be fetched.
        """
        return seen(_drawn(self.layout, self.seed), sprites, box)


@lru_cache(maxsize=4)
def _drawn(layout: int, seed: int) -> Image.Image:
    plan, dice = np.random.default_rng((layout, 0)), np.random.default_rng((layout, seed, 1))
    horizon = int(plan.uniform(0.35, 0.7) * WORLD_HEIGHT)
    sky, far, ground, wall, leaf = (_colour(plan) for _ in range(5))
    canvas_HWC = np.zeros((WORLD_HEIGHT, WORLD_WIDTH, 3), np.uint8)
    canvas_HWC[:horizon] = _gradient(sky, horizon)
    _clouds(canvas_HWC, dice, horizon)
    _hills(canvas_HWC, dice, horizon, far)
    canvas_HWC[horizon:] = _gradient(ground, WORLD_HEIGHT - horizon)
    for _ in range(dice.integers(4, 9)):
        _house(canvas_HWC, dice, horizon, wall)
    for _ in range(dice.integers(6, 14)):
        _tree(canvas_HWC, dice, horizon, leaf)
    return Image.fromarray(canvas_HWC)


def _colour(dice: np.random.Generator) -> Colour:
    red, green, blue = (int(value) for value in dice.integers(50, 215, 3))
    return red, green, blue


def _varied(dice: np.random.Generator, colour: Colour) -> Colour:
    red, green, blue = (int(np.clip(value + dice.integers(-45, 46), 0, 255)) for value in colour)
    return red, green, blue


def _gradient(colour: Colour, height: int) -> Picture:
    light_H = np.linspace(0.85, 1.15, height)
    shades_H1C: Picture = np.clip(light_H[:, None, None] * np.array(colour), 0, 255).astype(np.uint8)
    return shades_H1C


def _clouds(canvas_HWC: Picture, dice: np.random.Generator, horizon: int) -> None:
    for _ in range(dice.integers(2, 7)):
        centre = int(dice.integers(WORLD_WIDTH)), int(dice.integers(horizon))
        axes = int(dice.integers(80, 260)), int(dice.integers(20, 60))
        cv2.ellipse(canvas_HWC, centre, axes, 0, 0, 360, (235, 235, 240), cv2.FILLED, cv2.LINE_AA)


def _hills(canvas_HWC: Picture, dice: np.random.Generator, horizon: int, colour: Colour) -> None:
    for _ in range(dice.integers(2, 6)):
        centre = int(dice.integers(WORLD_WIDTH)), horizon
        axes = int(dice.integers(120, 420)), int(dice.integers(40, 220))
        cv2.ellipse(canvas_HWC, centre, axes, 0, 180, 360, _varied(dice, colour), cv2.FILLED, cv2.LINE_AA)


def _house(canvas_HWC: Picture, dice: np.random.Generator, horizon: int, colour: Colour) -> None:
    left, width, height = int(dice.integers(-60, WORLD_WIDTH)), int(dice.integers(90, 260)), int(dice.integers(80, 300))
    bottom = horizon + int(dice.integers(0, 120))
    corner, other = (left, bottom - height), (left + width, bottom)
    cv2.rectangle(canvas_HWC, corner, other, _varied(dice, colour), cv2.FILLED)
    cv2.rectangle(canvas_HWC, corner, other, _OUTLINE, 3)
    roof = np.array([corner, (left + width, bottom - height), (left + width // 2, bottom - height - width // 3)])
    cv2.fillPoly(canvas_HWC, [roof], _varied(dice, (150, 70, 60)), cv2.LINE_AA)
    for x in range(left + 20, left + width - 40, 50):
        cv2.rectangle(
            canvas_HWC, (x, bottom - height + 20), (x + 26, bottom - height + 56), (250, 240, 190), cv2.FILLED
        )


def _tree(canvas_HWC: Picture, dice: np.random.Generator, horizon: int, colour: Colour) -> None:
    foot = int(dice.integers(WORLD_WIDTH)), horizon + int(dice.integers(0, WORLD_HEIGHT - horizon))
    height, radius = int(dice.integers(60, 220)), int(dice.integers(30, 110))
    cv2.line(canvas_HWC, foot, (foot[0], foot[1] - height), (90, 60, 40), 14)
    top = (foot[0], foot[1] - height)
    cv2.circle(canvas_HWC, top, radius, _varied(dice, colour), cv2.FILLED, cv2.LINE_AA)
    cv2.circle(canvas_HWC, top, radius, _OUTLINE, 3, cv2.LINE_AA)
