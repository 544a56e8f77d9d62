"""Scene of a composed film: a place, the sprites of each drawing, and the camera's box of each frame.

A fade through black is two fades with a black scene in between; so is an iris-out followed by an iris-in. Both scenes
continue during a transition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import cv2
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
    """Empty for a passer-by, whom the truth about the film leaves out."""
    picture: str
    x: float
    y: float
    size: float = 1.0
    mirrored: bool = False


Sprites = tuple[Sprite, ...]
Draw = Callable[[int], Sprites]
"""Function from the number of a drawing to its sprites."""
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


def named(sprites: Sprites) -> Sprites:
    """Return the characters without passers-by."""
    return tuple(sprite for sprite in sprites if sprite.name)


def no_sprites(_drawing: int) -> Sprites:
    """Drawing without characters."""
    return ()


@dataclass(frozen=True)
class Scene:
    """Scene, independent of its position in the film."""

    name: str
    length: int
    place: Place
    draw: Draw = no_sprites
    frames_per_drawing: int = 3
    movement: Movement = "none"
    camera: Camera = "static"
    look: Look | None = None
    """Camera's box of each frame; None shows the whole place."""
    flashes: tuple[tuple[int, int], ...] = ()
    """First white frame and number of white frames of each flash."""
    light: Light | None = None
    """Brightness of each frame, 1 as painted; None is constant."""
    opened_by: TransitionKind = "cut"
    opening_frames: int = 0
    """Even number of mixed frames of the transition; half of them lie in the scene before."""

    @property
    def characters(self) -> tuple[str, ...]:
        """Names of its characters."""
        return tuple(sprite.name for sprite in named(self.draw(0)))

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


@dataclass(frozen=True)
class Mix:
    """Mix of a scene's frame with the previous or the next scene."""

    kind: TransitionKind
    scene: int
    """The other scene."""
    frame: int
    """Frame of the other scene: beyond its last one, or negative, before its first."""
    share: float
    """Share of the newer scene in the picture."""


def mix_at(scenes: Sequence[Scene], number: int, frame: int) -> Mix | None:
    """Return the mix of a frame of a scene; None if the frame is clean."""
    scene, left = scenes[number], scenes[number].length - frame
    if number > 0 and frame < scene.opening_frames // 2:
        share = _share(frame, scene.opening_frames)
        return Mix(scene.opened_by, number - 1, scenes[number - 1].length + frame, share)
    if number + 1 < len(scenes) and left <= scenes[number + 1].opening_frames // 2:
        after = scenes[number + 1]
        return Mix(after.opened_by, number + 1, -left, _share(-left, after.opening_frames))
    return None


def mixed(old_HWC: Picture, new_HWC: Picture, share: float, kind: TransitionKind = "dissolve") -> Picture:
    """Return the picture with `share` of the new one: mixed in, or on its side of the border of a wipe or iris."""
    if kind not in ("wipe", "iris-in", "iris-out"):
        return np.round(old_HWC * (1 - share) + new_HWC * share).astype(np.uint8)
    height, width = old_HWC.shape[:2]
    if kind == "wipe":
        is_new_HW = np.broadcast_to(np.arange(width) < share * width, (height, width))
    else:
        is_new_HW = _disc(height, width, share) if kind == "iris-in" else ~_disc(height, width, 1 - share)
    return np.where(is_new_HW[..., None], new_HWC, old_HWC)


def _disc(height: int, width: int, share: float) -> np.ndarray:
    """Return the mask of a disc in the middle; at share 1 it reaches the corners."""
    mask_HW = np.zeros((height, width), np.uint8)
    radius = round(share * np.hypot(height, width) / 2)
    return cv2.circle(mask_HW, (width // 2, height // 2), radius, 1, cv2.FILLED) > 0


def _share(offset: int, mixed_frames: int) -> float:
    """Return the share of the new scene in the frame `offset` frames after its first one."""
    return (offset + mixed_frames // 2 + 1) / (mixed_frames + 1)
