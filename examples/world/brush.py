"""Brush: filled and outlined shapes in flat colours on a canvas, placed by nested transforms, under coloured light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos, pi, sin

import cv2
import numpy as np
from numpy.typing import NDArray

from examples.world.scene import Point
from examples.world.textures import Picture

Colour = tuple[int, int, int]
"""Red, green, blue."""
Points = NDArray[np.float64]
"""Corners of a shape, one (x, y) per row."""
INK: Colour = (44, 34, 52)
WHITE: Colour = (250, 250, 252)
DAYLIGHT = (1.0, 1.0, 1.0)
BITS = 4
"""Binary digits after the point in the coordinates of OpenCV."""
_CIRCLE = np.stack(
    [np.cos(np.linspace(0, 2 * pi, 24, endpoint=False)), np.sin(np.linspace(0, 2 * pi, 24, endpoint=False))], -1
)


@dataclass(frozen=True, eq=False)
class Brush:
    """Canvas with a transform from the coordinates of the shapes to its pixels."""

    canvas_HWC: Picture
    """BGR."""
    matrix: NDArray[np.float64]
    """3x3."""
    light: tuple[float, float, float] = DAYLIGHT
    """Factors of red, green and blue."""
    ink: float = 1.4
    """Width of outlines, in units of the outermost coordinates."""

    @classmethod
    def on(cls, canvas_HWC: Picture, scale: float, left: float = 0.0, top: float = 0.0) -> Brush:
        """Brush whose point (left, top) is the canvas's corner, with `scale` pixels per unit."""
        matrix = np.array([[scale, 0, -scale * left], [0, scale, -scale * top], [0, 0, 1.0]])
        return cls(canvas_HWC, matrix, ink=1.4 * scale)

    def under(self, light: tuple[float, float, float]) -> Brush:
        """Brush whose colours are multiplied by a light."""
        return replace(self, light=light)

    def thin(self, share: float) -> Brush:
        """Brush with thinner outlines."""
        return replace(self, ink=self.ink * share)

    def placed(self, x: float, y: float, angle: float = 0.0, across: float = 1.0, down: float = 1.0) -> Brush:
        """Brush whose origin is (x, y), turned clockwise by `angle` (radians) and stretched."""
        turned = np.array(
            [[cos(angle) * across, -sin(angle) * down, x], [sin(angle) * across, cos(angle) * down, y], [0, 0, 1.0]]
        )
        return replace(self, matrix=self.matrix @ turned)

    def shape(self, points: Sequence[Point] | Points, colour: Colour, *, outlined: bool = True) -> None:
        """Fill a polygon, after drawing its outline."""
        corners = self._corners(points)
        if outlined:
            self._stroke(corners, 2 * self.ink, INK, closed=True)
        self._fill(corners, colour)

    def ellipse(self, x: float, y: float, across: float, down: float, colour: Colour, *, outlined: bool = True) -> None:
        """Fill an ellipse of these radii."""
        self.shape(_CIRCLE * (across, down) + (x, y), colour, outlined=outlined)

    def ring(self, x: float, y: float, across: float, down: float, width: float, colour: Colour) -> None:
        """Draw the outline of an ellipse of these radii."""
        circle = _CIRCLE * (across, down) + (x, y)
        self.line([*map(tuple, circle), tuple(circle[0])], width, colour)

    def bar(self, start: Point, end: Point, thick: float, colour: Colour, *, tapered: float = 1.0) -> None:
        """Fill a bar with round ends; `tapered` is the thickness at its end over that at its start."""
        self.shape(_capsule(start, end, thick / 2, tapered * thick / 2), colour)

    def line(self, points: Sequence[Point], width: float, colour: Colour) -> None:
        """Draw an open line."""
        corners, width = self._corners(points), width * float(np.sqrt(abs(np.linalg.det(self.matrix[:2, :2]))))
        self._stroke(corners, width, colour, closed=False)

    def _fill(self, corners: NDArray[np.int32], colour: Colour) -> None:
        """Fill a polygon of corners in fractions of a pixel; every shape is drawn by this and by `_stroke`."""
        cv2.fillPoly(self.canvas_HWC, [corners], self._bgr(colour), cv2.LINE_AA, BITS)

    def _stroke(self, corners: NDArray[np.int32], width: float, colour: Colour, *, closed: bool) -> None:
        """Draw a line of a width in pixels through such corners."""
        wide = max(1, round(width))
        cv2.polylines(self.canvas_HWC, [corners], closed, self._bgr(colour), wide, cv2.LINE_AA, BITS)

    def _corners(self, points: Sequence[Point] | Points) -> NDArray[np.int32]:
        placed = np.asarray(points, np.float64) @ self.matrix[:2, :2].T + self.matrix[:2, 2]
        return np.asarray(np.round(placed * (1 << BITS)), np.int32)

    def _bgr(self, colour: Colour) -> tuple[float, float, float]:
        red, green, blue = (min(255.0, value * factor) for value, factor in zip(colour, self.light, strict=True))
        return blue, green, red


def dark(colour: Colour, share: float = 0.78) -> Colour:
    """Return a share of a colour's light."""
    red, green, blue = (round(value * share) for value in colour)
    return red, green, blue


def light(colour: Colour) -> Colour:
    """Return a colour about half way to white."""
    red, green, blue = (round(value + 0.45 * (255 - value)) for value in colour)
    return red, green, blue


def smooth(points: Sequence[Point], steps: int = 4) -> Points:
    """Return a closed curve through the points (Catmull-Rom), as the corners of a polygon."""
    knots = np.asarray(points, np.float64)
    before, after, beyond = (np.roll(knots, shift, axis=0) for shift in (1, -1, -2))
    parts = []
    for share in np.linspace(0, 1, steps, endpoint=False):
        square, cube = share**2, share**3
        parts.append(
            0.5 * (2 * knots + (after - before) * share + (2 * before - 5 * knots + 4 * after - beyond) * square
                   + (3 * knots - before - 3 * after + beyond) * cube)
        )  # fmt: skip
    return np.stack(parts, axis=1).reshape(-1, 2)


def _capsule(start: Point, end: Point, near: float, far: float) -> Points:
    first, last = np.asarray(start), np.asarray(end)
    along = np.arctan2(*(last - first)[::-1])
    half = np.linspace(-pi / 2, pi / 2, 8)
    around = np.concatenate([along + half, along + pi + half])
    radius = np.repeat([far, near], len(half))[:, None]
    middle = np.repeat([last, first], len(half), axis=0)
    return np.asarray(middle + radius * np.stack([np.cos(around), np.sin(around)], -1))
