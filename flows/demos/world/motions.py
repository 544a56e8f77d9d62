"""Motions of figures and cameras by exact amounts: a steady drift, a pan, a zoom, and either held on twos or threes."""

from __future__ import annotations

from flows.demos.world.scene import Box, Draw, Look, Sprite


def drift(name: str, start: tuple[float, float], step: tuple[float, float]) -> Draw:
    """A figure that moves from `start` by `step` pixels of the place a drawing."""
    return lambda drawing: (Sprite(name, name, start[0] + step[0] * drawing, start[1] + step[1] * drawing),)


def pan(box: Box, x: float, y: float = 0) -> Look:
    """A camera that sees `box` first and moves by (x, y) pixels of the place a frame."""
    left, top, right, bottom = box
    return lambda frame: (left + x * frame, top + y * frame, right + x * frame, bottom + y * frame)


def held(look: Look, frames: int) -> Look:
    """A camera that moves with the drawings, each held for so many frames."""
    return lambda frame: look(frame // frames)


def zoom(box: Box, x: float, y: float, start: float, end: float, length: int) -> Look:
    """A camera that magnifies the point (x, y) of a place, whose box is given, evenly from `start` to `end`."""
    return lambda frame: closer(box, x, y, start + (end - start) * frame / (length - 1))


def closer(box: Box, x: float, y: float, scale: float) -> Box:
    """Part of a box magnified by `scale` around (x, y), as far as the borders allow."""
    left, top, right, bottom = box
    width, height = (right - left) / scale, (bottom - top) / scale
    left = min(max(x - width / 2, left), right - width)
    top = min(max(y - height / 2, top), bottom - height)
    return left, top, left + width, top + height
