"""Drawn places and figures: textured figures that move over a textured ground by exactly known amounts.

A place wraps around: figures and ground that leave it on one side enter it on the other, so any speed is possible for
any number of frames. Letters of the shapes: H W pixels, C colours (BGR).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from examples.world.scene import Box, Point, Sprite, Sprites, TimeOfDay
from examples.world.textures import Picture, PictureSize


@dataclass(frozen=True, eq=False)
class Figure:
    """Picture of a character on a canvas of the ground's size, and the mask of the pixels it covers."""

    name: str
    skin_HWC: Picture
    mask_HW: NDArray[np.bool_]
    middle: Point
    """Position on its canvas, in pixels of the place."""


@dataclass(frozen=True, eq=False)
class DrawnPlace:
    """Ground and its possible figures; the picture of a sprite is the name of a figure."""

    name: str
    ground_HWC: Picture
    size: PictureSize
    """Width and height of the film's pictures."""
    figures: tuple[Figure, ...] = ()
    fine: int = 1
    """Pixels of the ground per pixel of the place, averaged: figures and camera move in steps of 1/fine pixel."""
    margin: int = 0
    """Pixels of the place beyond each border of the unmoved camera's box."""

    @property
    def time_of_day(self) -> TimeOfDay | None:
        """None: drawn places have no time of day."""
        return None

    @property
    def whole(self) -> Box:
        """Box of the place without the margin."""
        height, width = self.ground_HWC.shape[:2]
        return self.margin, self.margin, width / self.fine - self.margin, height / self.fine - self.margin

    def picture(self, sprites: Sprites, box: Box) -> Picture:
        """Return the ground with figures, as the camera sees it: BGR, HWC uint8."""
        canvas_HWC = self.ground_HWC
        for sprite in sprites:
            canvas_HWC = self._with_figure(canvas_HWC, sprite)
        (left, width), (top, height) = self._span(box[0], box[2]), self._span(box[1], box[3])
        seen_HWC = np.roll(canvas_HWC, (-top, -left), axis=(0, 1))[:height, :width]
        return np.asarray(cv2.resize(seen_HWC, self.size, interpolation=cv2.INTER_AREA), np.uint8)

    def seen_at(self, sprite: Sprite, box: Box) -> Point:
        """Return the position of a figure's middle in that picture."""
        left, top, right, bottom = box
        height, width = self.ground_HWC.shape[:2]
        x, y = (sprite.x - left) % (width / self.fine), (sprite.y - top) % (height / self.fine)
        return x * self.size[0] / (right - left), y * self.size[1] / (bottom - top)

    def _span(self, start: float, end: float) -> tuple[int, int]:
        """Return first pixel and number of pixels of the ground, rounded around the middle to keep a zoom centred."""
        length = round(self.fine * (end - start))
        return (round(self.fine * (start + end)) - length) // 2, length

    def _with_figure(self, canvas_HWC: Picture, sprite: Sprite) -> Picture:
        figure = next(figure for figure in self.figures if figure.name == sprite.picture)
        shift = round(self.fine * (sprite.y - figure.middle[1])), round(self.fine * (sprite.x - figure.middle[0]))
        moved_HW1 = np.roll(figure.mask_HW, shift, axis=(0, 1))[..., None]
        return np.where(moved_HW1, np.roll(figure.skin_HWC, shift, axis=(0, 1)), canvas_HWC)
