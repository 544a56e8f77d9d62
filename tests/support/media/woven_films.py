"""Numbered pictures woven into telecine (3:2 pulldown) and interlaced video, as a telecine machine and a camera do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle

from examples.world.textures import Picture

PULLDOWN = (2, 3)
"""Fields that film frames last in turn."""


def telecined(pictures: Iterable[Picture], top_first: bool = True) -> list[Picture]:
    """Return frames of video, five for four film frames; an odd last field is left out."""
    fields = [picture for picture, length in zip(pictures, cycle(PULLDOWN)) for _ in range(length)]
    return interlaced(fields, top_first)


def interlaced(pictures: Sequence[Picture], top_first: bool = True) -> list[Picture]:
    """Return frames of video: one of the fields from each picture, the other from the next; half as many frames."""
    return [woven(first, second, top_first) for first, second in zip(pictures[::2], pictures[1::2], strict=False)]


def woven(first: Picture, second: Picture, top_first: bool) -> Picture:
    """Return a frame with the first field of one picture and the second field of another."""
    frame = first.copy()
    frame[top_first::2] = second[top_first::2]
    return frame
