"""Scenery: drawn places in which puppets act, by day and by night.

Every place is as wide as `PERIOD` and then repeats, so that a camera may follow a character for any distance. Lengths
are units of a picture 180 high, of which a film has `SCALE` pixels each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

from examples.world.brush import DAYLIGHT, Brush, Colour, Points, smooth
from examples.world.characters import Character
from examples.world.passers_by import PasserBy, draw_passer_by
from examples.world.puppets import Puppet, draw, flag
from examples.world.scene import Box, Point, Sprite, Sprites, TimeOfDay
from examples.world.textures import Picture, PictureSize

WIDTH, HEIGHT, SCALE = 320, 180, 2
PERIOD = 400
GROUND = 168
"""Height of the ground on which puppets stand."""
_NIGHT = (0.30, 0.36, 0.66)
_BY_NIGHT = (0.72, 0.76, 1.0)
"""Light on places and on puppets."""
Cloud = tuple[float, float, float]
"""Position of its middle, and size."""
_CLOUDS: tuple[Cloud, ...] = ((150, 30, 17), (330, 44, 14))
_Draw = Callable[[Brush], None]


@dataclass(frozen=True)
class Scenery:
    """Place drawn by code with the puppets that act in it; a sprite is positioned by its feet."""

    name: str
    cast: tuple[tuple[str, Character], ...]
    """Looks by name."""
    night: bool = False
    flag: float | None = None
    """Position of a planted flag."""
    clouds: tuple[Cloud, ...] = _CLOUDS

    @property
    def time_of_day(self) -> TimeOfDay:
        """Day or night."""
        return "night" if self.night else "day"

    @property
    def size(self) -> PictureSize:
        """Width and height of the film's pictures."""
        return SCALE * WIDTH, SCALE * HEIGHT

    @property
    def whole(self) -> Box:
        """Box of the unmoved camera."""
        return 0, 0, WIDTH, HEIGHT

    def seen_at(self, sprite: Sprite, box: Box) -> Point:
        """Return the position of a puppet's feet in the picture of a box."""
        left, top, right, bottom = box
        width, height = self.size
        return (sprite.x - left) * width / (right - left), (sprite.y - top) * height / (bottom - top)

    def picture(self, sprites: Sprites, box: Box) -> Picture:
        """Return the place with puppets and passers-by, as the camera sees it: BGR, HWC uint8.

        A flag stands in front, so that nobody hides it.
        """
        canvas_HWC = _background(self.name, self.night, self.clouds, box).copy()
        self.paint(Brush.on(canvas_HWC, SCALE * WIDTH / (box[2] - box[0]), box[0], box[1]), sprites, box)
        return canvas_HWC

    def paint(self, brush: Brush, sprites: Sprites, box: Box) -> None:
        """Paint puppets, passers-by and the flag with a brush in the coordinates of the place."""
        brush, looks = brush.under(_BY_NIGHT if self.night else DAYLIGHT), dict(self.cast)
        for sprite in sprites:
            if isinstance(sprite, PasserBy):
                draw_passer_by(brush, sprite)
            else:
                assert isinstance(sprite, Puppet)
                draw(brush, looks[sprite.picture], sprite)
        if self.flag is not None:
            for period in flags_in(self.flag, box):
                flag(brush.placed(period, GROUND + 2))


def flags_in(x: float, box: Box) -> tuple[float, ...]:
    """Return the positions of a flag near a box: a place repeats, and so does its flag."""
    first = (x - box[0]) % PERIOD + box[0]
    return first - PERIOD, first, first + PERIOD


@lru_cache(maxsize=4)
def _background(name: str, night: bool, clouds: tuple[Cloud, ...], box: Box) -> Picture:
    """Return the place as the camera sees it."""
    drawn_HWC, (left, top, right, bottom) = _drawn(name, night, clouds), box
    first, above = round(SCALE * left) % (SCALE * PERIOD), round(SCALE * top)
    seen_HWC = drawn_HWC[above : above + round(SCALE * (bottom - top)), first : first + round(SCALE * (right - left))]
    if seen_HWC.shape[:2] == (SCALE * HEIGHT, SCALE * WIDTH):
        return seen_HWC
    return np.asarray(cv2.resize(seen_HWC, (SCALE * WIDTH, SCALE * HEIGHT), interpolation=cv2.INTER_LINEAR), np.uint8)


@lru_cache(maxsize=32)
def _drawn(name: str, night: bool, clouds: tuple[Cloud, ...]) -> Picture:
    """Return a place for every position of the camera: one period, and a picture's width of the next."""
    canvas_HWC = np.zeros((SCALE * HEIGHT, SCALE * (PERIOD + WIDTH), 3), np.uint8)
    place, lefts = PLACES[name], (-PERIOD, 0, PERIOD)
    for left in lefts:
        place.sky(Brush.on(canvas_HWC, SCALE, -left))
    for left in lefts:
        for x, y, size in clouds if place.is_outside else ():
            _cloud(Brush.on(canvas_HWC, SCALE, -left), x, y, size)
    for left in lefts:
        place.day(Brush.on(canvas_HWC, SCALE, -left))
    if night:
        canvas_HWC[:] = np.round(canvas_HWC * np.array(_NIGHT[::-1]))
        for left in lefts:
            place.lights(Brush.on(canvas_HWC, SCALE, -left))
    return canvas_HWC


@dataclass(frozen=True)
class _Place:
    sky: _Draw
    """Draws one period behind the clouds."""
    day: _Draw
    """Draws one period before them."""
    lights: _Draw
    """Draws what shines at night."""
    is_outside: bool = True


def _sky(brush: Brush, high: Colour, low: Colour, horizon: float) -> None:
    for band in range(12):
        share = band / 11
        red, green, blue = (round(top + (end - top) * share) for top, end in zip(high, low, strict=True))
        brush.shape(
            _box(0, horizon * band / 12, PERIOD, horizon * (band + 1) / 12 + 1), (red, green, blue), outlined=False
        )


def _box(left: float, top: float, right: float, bottom: float) -> Points:
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float64)


def _cloud(brush: Brush, x: float, y: float, size: float) -> None:
    for dx, dy, radius in ((-1.1, 0.15, 0.6), (-0.3, -0.2, 0.8), (0.6, 0.0, 0.75), (1.3, 0.2, 0.5)):
        brush.ellipse(x + dx * size, y + dy * size, radius * size, 0.7 * radius * size, (252, 253, 255), outlined=False)


def _night_sky(brush: Brush) -> None:
    brush.ellipse(205, 28, 15, 15, (255, 246, 200), outlined=False)
    for x, y in ((30, 20), (75, 42), (110, 14), (150, 36), (252, 48), (290, 16), (330, 40), (375, 22)):
        brush.ellipse(x, y, 1.8, 1.8, (255, 255, 240), outlined=False)


def _meadow(brush: Brush) -> None:
    brush.shape(
        smooth([(0, 112), (60, 84), (150, 104), (250, 82), (340, 100), (400, 112), (400, 190), (0, 190)]),
        (120, 190, 104),
        outlined=False,
    )
    brush.shape(_box(0, 120, PERIOD, 182), (104, 196, 70), outlined=False)
    brush.shape([(0, 120), (PERIOD, 120), (PERIOD, 128), (0, 128)], (150, 220, 100), outlined=False)
    brush.bar((262, 132), (262, 84), 13, (136, 92, 56))
    for x, y, radius in ((240, 66, 24), (284, 66, 24), (262, 44, 30), (262, 70, 26)):
        brush.ellipse(x, y, radius, radius * 0.85, (48, 150, 62), outlined=False)
    brush.ellipse(254, 38, 16, 11, (92, 190, 84), outlined=False)
    for x, colour in ((18, 0), (52, 1), (92, 0), (128, 1), (176, 0), (214, 1), (300, 0), (342, 1), (380, 0)):
        petals: Colour = (255, 120, 170) if colour else (255, 240, 110)
        brush.ellipse(x, 150 + 14 * colour, 4, 4, petals, outlined=False)
        brush.ellipse(x, 150 + 14 * colour, 1.5, 1.5, (255, 255, 255), outlined=False)


def _beach_sky(brush: Brush) -> None:
    _sky(brush, (70, 190, 250), (196, 240, 252), 84)
    brush.ellipse(205, 28, 15, 15, (255, 244, 170), outlined=False)


def _beach(brush: Brush) -> None:
    brush.shape(_box(0, 84, PERIOD, 132), (30, 140, 214), outlined=False)
    for y, shade in ((92, (60, 166, 228)), (106, (70, 180, 232)), (118, (110, 206, 238))):
        for x in range(0, PERIOD, 50):
            brush.ellipse(x + (y % 7) * 6, y, 16, 1.8, shade, outlined=False)
    brush.shape(_box(0, 128, PERIOD, 182), (246, 222, 158), outlined=False)
    brush.shape(_box(0, 126, PERIOD, 131), (240, 250, 252), outlined=False)
    brush.shape(smooth([(282, 150), (274, 110), (286, 66), (292, 66), (284, 110), (292, 150)]), (160, 112, 66))
    for dx, dy in ((-44, 4), (-34, -20), (0, -30), (34, -22), (44, 2)):
        brush.shape(
            smooth(
                [(288, 66), (288 + 0.6 * dx, 62 + 0.8 * dy), (288 + dx, 68 + dy + 10), (288 + 0.5 * dx, 68 + 0.4 * dy)]
            ),
            (52, 160, 74),
        )
    brush.shape(smooth([(24, 146), (60, 140), (60, 148), (24, 154)]), (230, 90, 80), outlined=False)
    brush.ellipse(150, 160, 5, 4, (244, 150, 120), outlined=False)
    brush.ellipse(352, 154, 5, 4, (250, 240, 230), outlined=False)


_HOUSES = ((0, 74, 44, (222, 110, 92)), (74, 62, 20, (238, 190, 110)), (136, 84, 52, (150, 130, 190)),
           (220, 58, 30, (236, 150, 120)), (278, 70, 14, (120, 160, 190)), (348, 52, 48, (226, 204, 160)))  # fmt: skip


def _street(brush: Brush) -> None:
    for left, width, top, colour in _HOUSES:
        brush.shape(_box(left, top, left + width, 134), colour)
        brush.shape(_box(left, top - 6, left + width, top), (92, 70, 76))
    _windows(brush, (84, 116, 150))
    brush.shape(_box(0, 132, PERIOD, 146), (196, 190, 184), outlined=False)
    brush.shape(_box(0, 146, PERIOD, 182), (104, 104, 116), outlined=False)
    for x in range(10, PERIOD, 80):
        brush.shape(_box(x, 174, x + 40, 178), (244, 236, 200), outlined=False)
    brush.bar((206, 142), (206, 58), 4.5, (60, 66, 80))
    brush.ellipse(206, 54, 8, 7, (246, 240, 214))


def _windows(brush: Brush, colour: Colour) -> None:
    for left, width, top, _ in _HOUSES:
        for x in range(left + 9, left + width - 14, 19):
            for y in range(top + 10, 112, 24):
                brush.shape(_box(x, y, x + 11, y + 14), colour, outlined=False)


def _street_lights(brush: Brush) -> None:
    _windows(brush, (255, 214, 110))
    brush.ellipse(206, 54, 13, 12, (255, 236, 160), outlined=False)


def _classroom(brush: Brush) -> None:
    brush.shape(_box(0, 104, PERIOD, 130), (186, 134, 84), outlined=False)
    brush.shape(_box(0, 128, PERIOD, 182), (212, 164, 108), outlined=False)
    for y in (140, 154, 170):
        brush.shape(_box(0, y, PERIOD, y + 1.4), (176, 126, 78), outlined=False)
    brush.shape(_box(96, 26, 232, 92), (142, 96, 58))
    brush.shape(_box(102, 32, 226, 86), (38, 96, 76), outlined=False)
    brush.line([(114, 46), (150, 46)], 2.4, (226, 240, 226))
    brush.line([(114, 58), (182, 58)], 2.4, (226, 240, 226))
    brush.line([(190, 70), (200, 44), (212, 70), (190, 70)], 2.4, (250, 220, 120))
    for x in (14, 262, 334):
        brush.shape(_box(x, 20, x + 56, 88), (250, 250, 250))
        brush.shape(_box(x + 5, 25, x + 51, 83), (150, 214, 250), outlined=False)
        brush.shape(_box(x + 26, 25, x + 30, 83), (250, 250, 250), outlined=False)


def _classroom_lights(brush: Brush) -> None:
    for x in (14, 262, 334):
        brush.shape(_box(x + 5, 25, x + 51, 83), (22, 26, 70), outlined=False)
        brush.ellipse(x + 40, 40, 4, 4, (255, 246, 200), outlined=False)
    for x in (80, 250, 390):
        brush.ellipse(x, 6, 22, 5, (255, 240, 180), outlined=False)


def _snow(brush: Brush) -> None:
    for x, top, wide in ((70, 30, 90), (190, 12, 110), (320, 36, 96)):
        brush.shape([(x - wide, 124), (x, top), (x + wide, 124)], (126, 146, 190), outlined=False)
        brush.shape(
            [
                (x - 0.3 * wide, top + 30),
                (x, top),
                (x + 0.3 * wide, top + 30),
                (x + 0.1 * wide, top + 22),
                (x - 0.1 * wide, top + 32),
            ],
            (250, 252, 255),
            outlined=False,
        )
    brush.shape(_box(0, 118, PERIOD, 182), (238, 246, 254), outlined=False)
    brush.shape(
        smooth([(0, 124), (100, 112), (200, 122), (310, 110), (400, 124), (400, 140), (0, 140)]),
        (238, 246, 254),
        outlined=False,
    )
    for x, foot in ((28, 134), (262, 138), (304, 128)):
        for level in range(3):
            wide, y = 22 - 5 * level, foot - 20 * level
            brush.shape([(x - wide, y), (x, y - 34), (x + wide, y)], (40, 110, 92))
        brush.shape([(x - 6, foot - 62), (x, foot - 74), (x + 6, foot - 62)], (250, 252, 255), outlined=False)
    for x in (60, 140, 210, 350):
        brush.ellipse(x, 164, 22, 2.4, (206, 222, 240), outlined=False)


def _shrine(brush: Brush) -> None:
    for x, y, radius, colour in (
        (20, 84, 40, (206, 70, 34)),
        (74, 92, 32, (232, 126, 36)),
        (268, 88, 38, (214, 80, 34)),
        (330, 92, 34, (238, 150, 44)),
        (384, 84, 36, (206, 70, 34)),
    ):
        brush.bar((x, 128), (x, y), 7, (96, 60, 48))
        brush.ellipse(x, y - 8, radius, radius * 0.8, colour, outlined=False)
    brush.shape(_box(0, 124, PERIOD, 182), (186, 176, 160), outlined=False)
    for y, shift in ((134, 0), (150, 30), (168, 10)):
        brush.shape(_box(0, y, PERIOD, y + 1.4), (150, 140, 126), outlined=False)
        for x in range(shift, PERIOD, 66):
            brush.shape(_box(x, y, x + 1.4, y + 16), (150, 140, 126), outlined=False)
    red: Colour = (214, 44, 40)
    for x in (122, 206):
        brush.shape(_box(x - 6, 40, x + 6, 134), red)
    brush.shape(_box(108, 52, 220, 62), red)
    brush.shape([(92, 26), (236, 26), (228, 40), (100, 40)], red)
    brush.shape([(90, 20), (238, 20), (236, 28), (92, 28)], (60, 40, 48), outlined=False)


def _shrine_lights(brush: Brush) -> None:
    _night_sky(brush)
    for x in (92, 236):
        brush.ellipse(x, 76, 9, 11, (255, 190, 90), outlined=False)


def _gradient(high: Colour, low: Colour, horizon: float) -> _Draw:
    return lambda brush: _sky(brush, high, low, horizon)


PLACES: Mapping[str, _Place] = {
    "meadow": _Place(_gradient((92, 176, 244), (200, 234, 252), 110), _meadow, _night_sky),
    "beach": _Place(_beach_sky, _beach, _night_sky),
    "city street": _Place(_gradient((140, 190, 236), (226, 232, 240), 130), _street, _street_lights),
    "classroom": _Place(_gradient((240, 220, 184), (240, 220, 184), 128), _classroom, _classroom_lights, False),
    "snowy hill": _Place(_gradient((150, 186, 220), (226, 238, 248), 120), _snow, _night_sky),
    "shrine": _Place(_gradient((250, 176, 110), (255, 226, 178), 126), _shrine, _shrine_lights),
}
