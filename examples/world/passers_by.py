"""Passers-by: small figures and animals behind the characters, which no caption names.

Lengths are those of `puppets.py`. A passer-by that walks advances by `step` with every drawing, and bobs as it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import sin

from examples.world.brush import INK, Brush, Colour, dark
from examples.world.scene import Sprite

_FURS: tuple[Colour, ...] = ((196, 120, 84), (92, 92, 108), (236, 228, 214), (126, 84, 60))
_DYES: tuple[Colour, ...] = ((96, 132, 190), (190, 86, 96), (120, 160, 110), (236, 190, 90), (170, 120, 200))


@dataclass(frozen=True)
class PasserBy(Sprite):
    """Passer-by without a name; its picture is its kind."""

    colour: Colour = _FURS[0]
    step: float = 0.0
    """Pixels to the right per drawing."""
    phase: float = 0.0

    def after(self, drawings: int) -> PasserBy:
        """Return it some drawings later."""
        return replace(self, x=self.x + self.step * drawings, phase=self.phase + 0.5 * drawings * bool(self.step))


def draw_passer_by(brush: Brush, one: PasserBy) -> None:
    """Draw a passer-by; the brush is in the coordinates of the place."""
    across = -one.size if one.mirrored else one.size
    figure = brush.placed(one.x, one.y, across=across, down=one.size).thin(0.6)
    KINDS[one.picture](figure, one.colour, one.phase)


def _animal(brush: Brush, colour: Colour, phase: float, *, ears: float, tail: float) -> None:
    swing = 2.5 * sin(phase)
    for x, shift in ((-8, swing), (-4, -swing), (5, -swing), (9, swing)):
        brush.bar((x, -7), (x + shift, 0), 3, dark(colour))
    brush.bar((-10, -11), (-17, -11 - tail), 2.6, colour)
    brush.ellipse(0, -10, 12, 6, colour)
    for x in (10, 17):
        brush.shape([(x - 3, -18), (x + ears, -24), (x + 3, -18)], colour)
    brush.ellipse(13, -15, 6.5, 6, colour)
    brush.ellipse(16, -16, 1.3, 1.3, INK, outlined=False)


def _cat(brush: Brush, colour: Colour, phase: float) -> None:
    _animal(brush, colour, phase, ears=0, tail=14)


def _dog(brush: Brush, colour: Colour, phase: float) -> None:
    _animal(brush.placed(0, 0, across=1.25, down=1.25), colour, phase, ears=-5, tail=7)


def _walker(brush: Brush, colour: Colour, phase: float) -> None:
    swing = 4 * sin(phase)
    for shift in (swing, -swing):
        brush.bar((0, -14), (shift, 0), 4, dark(colour, 0.5))
    brush.shape([(-5, -30), (5, -30), (7, -13), (-7, -13)], colour)
    brush.ellipse(0, -36, 6, 6.5, (240, 206, 178))
    brush.ellipse(-1.5, -38, 6, 5, dark(colour, 0.35), outlined=False)


def _bird(brush: Brush, colour: Colour, phase: float) -> None:
    flap = 7 * sin(phase)
    brush.shape([(-2, 0), (-14, -4 - flap), (-6, 2)], dark(colour, 0.6))
    brush.shape([(2, 0), (14, -4 - flap), (6, 2)], dark(colour, 0.6))
    brush.ellipse(0, 1, 6, 3, dark(colour, 0.7))


def _butterfly(brush: Brush, colour: Colour, phase: float) -> None:
    wide = 0.5 + 0.5 * abs(sin(phase))
    for side in (-1, 1):
        brush.ellipse(side * 5 * wide, -3, 5 * wide, 5, colour)
        brush.ellipse(side * 4 * wide, 4, 4 * wide, 4, dark(colour))
    brush.bar((0, -5), (0, 6), 2, INK)


def _balloon(brush: Brush, colour: Colour, phase: float) -> None:
    brush.line([(0, 10), (2 * sin(phase), 26)], 1.2, INK)
    brush.ellipse(0, 0, 8, 10, colour)
    brush.ellipse(-2.5, -4, 2, 2.6, (255, 255, 255), outlined=False)


KINDS: Mapping[str, Callable[[Brush, Colour, float], None]] = {
    "cat": _cat, "dog": _dog, "walker": _walker, "bird": _bird, "butterfly": _butterfly, "balloon": _balloon
}  # fmt: skip
FLYING: Mapping[str, tuple[float, float]] = {"bird": (16, 60), "butterfly": (60, 110), "balloon": (20, 60)}
"""Heights of those that fly: least and greatest distance from the upper edge."""
COLOURS: Mapping[str, tuple[Colour, ...]] = {
    "cat": _FURS, "dog": _FURS, "bird": _FURS, "walker": _FURS + _DYES, "butterfly": _DYES, "balloon": _DYES
}  # fmt: skip
HORIZON = (128.0, 138.0)
"""The same of those that walk."""
