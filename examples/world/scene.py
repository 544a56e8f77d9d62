"""Scene of a composed film: a place, the sprites of each drawing, and the camera's box of each frame."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from examples.world.textures import Picture, PictureSize

TransitionKind = Literal["cut", "dissolve", "fade", "wipe", "iris-in", "iris-out"]
Movement = str
"""Name of what the characters do: `none`, or one of the film's own."""
Camera = Literal["static", "pan", "zoom"]
TimeOfDay = Literal["day", "night"]
Box = tuple[float, float, float, float]
"""View of the camera: left, top, right, bottom in pixels of the place."""
Point = tuple[float, float]
"""Right and down, pixels."""


@dataclass(frozen=True)
class Sprite:
    """Character in one drawing: picture, position in the place (pixels), size, mirroring."""

    name: str
    picture: str
    x: float
    y: float
    size: float = 1.0
    mirrored: bool = False


Sprites = tuple[Sprite, ...]
Draw = Callable[[int], Sprites]
"""Drawing number -> the sprites on it."""
Look = Callable[[int], Box]
"""Frame of the scene -> the camera's box; also for frames before and after the scene, shown in its transitions."""
Light = Callable[[int], float]
"""Frame of the scene -> brightness."""


class Place(Hashable, Protocol):
    """Background with characters, seen by a camera; hashable, since the paintings of held drawings are cached."""

    @property
    def name(self) -> str:
        """Name in the truth about the film."""
        ...

    @property
    def time_of_day(self) -> TimeOfDay | None:
        """Day or night; None if unknown."""
        ...

    @property
    def size(self) -> PictureSize:
        """Width and height of the film's pictures."""
        ...

    @property
    def whole(self) -> Box:
        """Box of the unmoved camera."""
        ...

    def picture(self, sprites: Sprites, box: Box) -> Picture:
        """Return the place with characters, as the camera sees it: BGR, HWC uint8."""
        ...

    def seen_at(self, sprite: Sprite, box: Box) -> Point:
        """Return the position of a character in that picture."""
        ...


def no_sprites(_drawing: int) -> Sprites:
    """Drawing without characters."""
    return ()


@dataclass(frozen=True)
class Scene:
    """Scene, independent of its position in the film."""

    name: str
    length: int
    """Frames."""
    place: Place
    draw: Draw = no_sprites
    frames_per_drawing: int = 3
    movement: Movement = "none"
    camera: Camera = "static"
    look: Look | None = None
    """Camera's box of each frame; None: the whole place."""
    flashes: tuple[tuple[int, int], ...] = ()
    """First white frame and number of white frames of each flash."""
    light: Light | None = None
    """Brightness of each frame, 1 as painted; None: constant."""
    opened_by: TransitionKind = "cut"
    opening_frames: int = 0
    """Even number of mixed frames of the transition; half of them lie in the scene before."""

    @property
    def characters(self) -> tuple[str, ...]:
        """Names of its characters."""
        return tuple(sprite.name for sprite in self.draw(0))

    def sprites(self, frame: int) -> Sprites:
        """Return the characters of the drawing shown in a frame."""
        return self.draw(frame // self.frames_per_drawing)

    def box(self, frame: int) -> Box:
        """Return the camera's box of a frame."""
        return self.look(frame) if self.look else self.place.whole

    def is_white(self, frame: int) -> bool:
        """Return whether a frame is part of a flash."""
        return any(first <= frame < first + count for first, count in self.flashes)

    def picture(self, frame: int) -> Picture:
        """Return a frame of the scene without transitions, BGR, HWC uint8; read-only."""
        if self.is_white(frame):
            width, height = self.place.size
            return np.full((height, width, 3), 255, np.uint8)
        picture_HWC = _painted(self.place, self.sprites(frame), self.box(frame))
        if self.light is None:
            return picture_HWC
        return np.clip(picture_HWC * self.light(frame), 0, 255).astype(np.uint8)


@lru_cache(maxsize=8)  # held drawings, and the still half of a dissolve, are painted once
def _painted(place: Place, sprites: Sprites, box: Box) -> Picture:
    return place.picture(sprites, box)
