"""Scenes of training windows: which frames of the library each shows, its camera, its colours, and its figures.

Coordinates run from -1 to 1 on both axes; `theta` maps places in a picture to places in its source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float32]
FRAMES = 112
"""Frames of a window."""


@dataclass(frozen=True)
class Sources:
    """Contents of the library, without its pictures.

    Attributes:
        spans: (first frame, length, film) of each scene, neighbours in a film side by side.
        chances: sum of the chances of the scenes up to each one.
        looks: mean colours of each scene, (scenes, values).
        stretches: (first frame, length) of film with known changes.
        truth: is the frame mixed, does a new scene begin; (frames, 2).
        sprites: (first, number) of the cut-out figures among the frames.
    """

    spans: NDArray[np.int64]
    chances: NDArray[np.float64]
    looks: Floats
    stretches: NDArray[np.int64]
    truth: Floats
    sprites: tuple[int, int]

    def some(self, dice: Generator, count: int) -> NDArray[np.int64]:
        """Return the numbers of random scenes."""
        return np.minimum(np.searchsorted(self.chances, dice.random(count)), len(self.spans) - 1)


def turned(angle: float, zoom: float, aspect: float = 1.0) -> Floats:
    """Return the linear part (2, 2) of a map that turns and scales."""
    cos, sin = math.cos(angle) * zoom, math.sin(angle) * zoom
    return np.array([[cos * aspect, -sin], [sin * aspect, cos]], np.float32)


def placed(outer: Floats, inner_T: Floats) -> Floats:
    """Return the map that applies `outer` (T, 2, 3), then `inner_T`."""
    linear = inner_T[:, :, :2] @ outer[:, :, :2]
    moved = (inner_T[:, :, :2] @ outer[:, :, 2:]) + inner_T[:, :, 2:]
    return np.concatenate([linear, moved], axis=2)


class Shot:
    """A scene with its camera, colours and figures; `old` is the scene before it, which it may resemble."""

    zoom: float
    flip: float
    is_blank: bool

    def __init__(self, sources: Sources, dice: Generator, old: Shot | None = None) -> None:
        self.dice = dice
        way = dice.random()
        self.span = int(sources.some(dice, 1)[0])
        zoom = dice.uniform(0.45, 1.0)
        middle = dice.uniform(-1, 1, 2) * (1 - zoom)
        self.colour, is_recoloured = colour_change(dice), dice.random() < 0.5
        if not is_recoloured:
            self.colour = np.eye(3, 4, dtype=np.float32)
        if old is not None:
            if way < 0.2:  # a scene nearby in the film
                self.span = int(np.clip(old.span + dice.integers(-3, 4), 0, len(sources.spans) - 1))
            elif way < 0.45:  # like colours
                others = sources.some(dice, 64)
                far = np.abs(sources.looks[others] - sources.looks[old.span]).mean(axis=1)
                self.span = int(others[np.argsort(far)[dice.integers(3)]])
            elif way < 0.6:  # the same scene closer, farther or elsewhere
                self.span = old.span
            if self.span == old.span:
                closer = zoom < old.zoom / 1.35 or zoom > old.zoom * 1.35
                if not closer:
                    zoom = old.zoom * 0.5 if old.zoom > 0.7 else 1.0
                middle = dice.uniform(-1, 1, 2) * max(1 - zoom, 0)
            if way < 0.6 or dice.random() < 0.5:
                self.colour = old.colour
        self.zoom = zoom
        first, length, _ = sources.spans[self.span]
        self.is_blank = old is not None and not old.is_blank and dice.random() < 0.06
        self.first, self.length = int(first), int(length)
        self.speed = float(dice.choice((0.4, 0.7, 1, 1, 1, 1, 1.5, 2.5))) if dice.random() > 0.15 else 0.0
        self.hold = int(dice.choice((1, 1, 2, 2, 3, 4)))
        self.start = int(dice.integers(max(self.length, 1)))
        flip = dice.choice((-1.0, 1.0), p=(0.4, 0.6)) if old is None or self.span != old.span else np.sign(old.flip)
        self.flip = float(flip)
        self.base = turned(dice.normal(0, 0.08) if dice.random() < 0.2 else 0.0, zoom, flip * dice.uniform(0.85, 1.15))
        self.middle, self.camera = middle, self._camera(zoom)
        self.levels = int(dice.integers(3, 9)) if dice.random() < 0.12 else 0
        self.sketch = float(dice.uniform(0.5, 1)) if dice.random() < 0.05 else 0.0
        if old is not None and self.span == old.span:
            self.levels, self.sketch = old.levels, old.sketch
        if self.is_blank:
            tone = dice.choice((0.0, 0.0, 0.0, 1.0, dice.random()))
            tint = dice.random(3) if dice.random() < 0.3 else np.full(3, tone)
            self.colour = np.concatenate([np.zeros((3, 3)), tint[:, None]], axis=1).astype(np.float32)
        self.is_wild = bool(dice.random() < 0.12)
        count = int(dice.integers(3, 8)) if self.is_wild else int(dice.choice(4, p=(0.45, 0.3, 0.15, 0.1)))
        self.wild_hold = int(dice.choice((1, 2, 2, 3, 4)))
        self.figures = [self._figure(sources) for _ in range(0 if self.is_blank else count)]

    def _camera(self, zoom: float) -> Floats:
        """Return the camera's way, (4 FRAMES, 3): right, down, and the logarithm of the zoom."""
        dice, length = self.dice, 4 * FRAMES
        way = np.zeros((length, 3), np.float32)
        time = np.arange(length)[:, None]
        kind = dice.random()
        if kind < 0.3:  # slow
            way += dice.normal(0, (0.004, 0.003, 0.002), 3) * (time - length / 2)
        elif kind < 0.5:  # a fast move with a start and an end
            for begin in dice.integers(length, size=3):
                ramp = np.clip((time - begin) / dice.integers(4, 40), 0, 1)
                ramp = ramp * ramp * (3 - 2 * ramp)
                way += ramp * dice.normal(0, (0.9, 0.5, dice.choice((0.2, 0.7))), 3)
            way[:, 2] -= np.maximum(way[:, 2].max() - 0.2, 0)
        elif kind < 0.58:  # a fast pan without end
            way += time * dice.normal(0, (0.05, 0.03, 0.0), 3)
        elif kind < 0.67:  # a shake
            begin, frames = dice.integers(length), dice.integers(6, 60)
            inside = (time >= begin) & (time < begin + frames)
            way += inside * dice.normal(0, dice.uniform(0.02, 0.15), (length, 3)) * (1, 1, 0.3)
        return way * min(zoom, 1.0)

    def _figure(self, sources: Sources) -> dict[str, Any]:
        dice, length = self.dice, 4 * FRAMES
        time = np.arange(length)
        kind = int(dice.choice((0, 1, 1, 2, 2)))  # a piece of a picture, letters, a cut-out figure
        size = (
            dice.uniform(0.15, dice.choice((0.8, 1.2, 2.5)), 2)
            if kind != 1
            else (dice.uniform(0.2, 0.9), dice.uniform(0.05, 0.45))
        )
        place = dice.uniform(-0.9, 0.9, 2)
        held = time // (held := dice.choice((1, 2, 3, 4))) * held
        path = np.zeros((length, 2))
        move = dice.random()
        alpha = np.ones(length)
        begin = dice.integers(length)
        if self.is_wild:  # is elsewhere in each drawing
            kind = 0 if kind == 1 else kind
            size = dice.uniform(0.15, 0.6, 2)
            path = dice.uniform(-1, 1, (length, 2))[time // self.wild_hold]
        elif kind == 1 or move < 0.2:  # fades or pops in and out
            soft = dice.choice((1, 1, 6, 12, 24))
            stay = dice.integers(10, 200)
            alpha = np.clip(np.minimum(time - begin, begin + stay - time) / soft, 0, 1)
        elif move < 0.5:  # passes
            path = (held - begin)[:, None] * dice.normal(0, (dice.choice((0.03, 0.12)), 0.02), 2)
        elif move < 0.65:  # leaps in and stays
            ramp = np.clip((held - begin) / dice.integers(1, 14), 0, 1)[:, None]
            path = (1 - ramp) * dice.normal(0, 2.0, 2)
        else:  # acts on the spot
            path = np.sin(held[:, None] * dice.uniform(0.1, 1.0) + dice.uniform(0, 6)) * dice.normal(0, 0.12, 2)
        turn = turned(dice.normal(0, 0.2), 1.0)
        scale = turn / np.maximum(np.asarray(size)[:, None], 0.02)
        moved = -(scale @ (place + path).T).T
        theta = np.concatenate([np.broadcast_to(scale, (length, 2, 2)), moved[:, :, None]], axis=2).astype(np.float32)
        first, count = sources.sprites
        picture = int(first + dice.integers(count)) if kind == 2 else int(dice.integers(first))
        solid = 1.0 if kind == 1 or (dice.random() < 0.3 and kind == 0) else 0.0
        tone = dice.random(3) if dice.random() < 0.5 else np.full(3, dice.choice((0.02, 0.98)))
        return {
            "theta": theta, "alpha": alpha.astype(np.float32), "picture": picture, "kind": kind, "solid": solid,
            "tone": tone.astype(np.float32), "power": dice.choice((2.0, 3.0, 8.0)), "seed": int(dice.integers(256)),
        }  # fmt: skip

    def rows(self, times: NDArray[np.int64]) -> dict[str, Any]:
        """Return the rows of frames at these times since the shot began; they may be negative."""
        times = times % (4 * FRAMES)
        turned = ((self.start + times * self.speed) // self.hold * self.hold).astype(np.int64)
        period = max(2 * self.length - 2, 1)
        numbers = self.first + (self.length - 1) - np.abs(turned % period - (self.length - 1))
        numbers = np.clip(numbers, self.first, self.first + self.length - 1)
        way = self.camera[times]
        linear = self.base[None] * np.exp(way[:, 2])[:, None, None]
        moved = (self.middle[None] + way[:, :2])[:, :, None]
        count = len(times)
        return {
            "picture": numbers,
            "theta": np.concatenate([linear, moved], axis=2).astype(np.float32),
            "colour": np.broadcast_to(self.colour, (count, 3, 4)),
            "levels": np.full(count, self.levels), "sketch": np.full(count, self.sketch, np.float32),
        }  # fmt: skip


def colour_change(dice: Generator) -> Floats:
    """Return a change of colours that keeps shapes: hue, contrast, light, now and then a negative."""
    angle = dice.normal(0, 0.6)
    axis = np.full(3, 1 / math.sqrt(3))
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    hue = np.eye(3) * math.cos(angle) + math.sin(angle) * cross + (1 - math.cos(angle)) * np.outer(axis, axis)
    saturation = dice.uniform(0, 1.6)
    gray = np.full((3, 3), 1 / 3)
    matrix = (gray + saturation * (np.eye(3) - gray)) @ hue
    gain = np.exp(dice.normal(0, 0.25)) * np.exp(dice.normal(0, 0.1, 3))
    matrix, offset = matrix * gain[:, None], dice.normal(0, 0.08, 3)
    if dice.random() < 0.04:
        matrix, offset = -matrix, 1 + offset
    found: Floats = np.concatenate([matrix, offset[:, None]], axis=1).astype(np.float32)
    return found
