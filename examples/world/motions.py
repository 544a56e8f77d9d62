"""Motions of figures and cameras by exact amounts: a steady drift, a pan, a zoom, and either held on twos or threes."""

from __future__ import annotations

from examples.world.scene import Box, Draw, Look, Sprite


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
