"""Movements of figures and cameras: steady drifts, pans and zooms, and the acting of the art's characters."""

from __future__ import annotations

import random

from examples.world.paintings import WORLD_HEIGHT
from examples.world.scene import Box, Draw, Look, Sprite, Sprites

SPRITES = {
    "sylvie": ("sylvie green normal", "sylvie green surprised", "sylvie green giggle", "sylvie green smile"),
    "sylvie in blue": ("sylvie blue normal", "sylvie blue surprised", "sylvie blue giggle", "sylvie blue smile"),
    "eileen": ("eileen happy", "eileen vhappy", "eileen concerned"),
    "lucy": ("lucy happy", "lucy mad"),
}
"""Expressions of each character (sylvie has two outfits); the first word of a key is the character's name."""


def drift(name: str, start: tuple[float, float], step: tuple[float, float]) -> Draw:
    """Figure that moves from `start` by `step` pixels of the place per drawing."""
    return lambda drawing: (Sprite(name, name, start[0] + step[0] * drawing, start[1] + step[1] * drawing),)


def pan(box: Box, x: float, y: float = 0) -> Look:
    """Camera that starts at `box` and moves by (x, y) pixels of the place per frame."""
    left, top, right, bottom = box
    return lambda frame: (left + x * frame, top + y * frame, right + x * frame, bottom + y * frame)


def held(look: Look, frames: int) -> Look:
    """Camera that moves with the drawings, each held for `frames` frames."""
    return lambda frame: look(frame // frames)


def zoom(box: Box, x: float, y: float, start: float, end: float, length: int) -> Look:
    """Camera that magnifies the point (x, y) of a place with the given box, linearly from `start` to `end`."""
    return lambda frame: closer(box, x, y, start + (end - start) * frame / (length - 1))


def closer(box: Box, x: float, y: float, scale: float) -> Box:
    """Part of a box magnified by `scale` around (x, y), shifted to stay inside the box."""
    left, top, right, bottom = box
    width, height = (right - left) / scale, (bottom - top) / scale
    left = min(max(x - width / 2, left), right - width)
    top = min(max(y - height / 2, top), bottom - height)
    return left, top, left + width, top + height


def posed(key: str, face: int, x: int, y: int = WORLD_HEIGHT, size: float = 1.0, mirrored: bool = False) -> Sprite:
    """Return a character of SPRITES with the expression `face`, modulo their number."""
    return Sprite(key.partition(" ")[0], SPRITES[key][face % len(SPRITES[key])], x, y, size, mirrored)


def talk(*speakers: tuple[str, int]) -> Draw:
    """Characters (key of SPRITES, x) that stand and change expression; the first one changes most often."""
    return lambda drawing: tuple(
        posed(key, drawing // (1 + 3 * rank), x) for rank, (key, x) in enumerate(speakers)
    )  # fmt: skip


def stand(key: str, x: int) -> Draw:
    """Character that stands still."""
    return lambda _: (posed(key, 0, x),)


def walk(key: str, start: int, step: int) -> Draw:
    """Character that crosses the place from `start`, `step` world pixels a drawing."""
    return lambda drawing: (
        posed(key, drawing // 4 % 2, start + step * drawing, WORLD_HEIGHT + (0, 8, 14, 8)[drawing % 4]),
    )


def fight(first: str, second: str) -> Draw:
    """Two characters that leap: random position, size and mirroring in every drawing."""

    def draw(drawing: int) -> Sprites:
        dice = random.Random(drawing)
        return tuple(
            posed(
                key, drawing % 2, dice.randint(200, 1080), dice.randint(720, 1000), dice.uniform(0.9, 1.7),
                mirrored=dice.random() < 0.5,
            )
            for key in (first, second)
        )  # fmt: skip

    return draw
