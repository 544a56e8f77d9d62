"""Progress callback of work in named parts: the parts of a turn, the features of a data set."""

from __future__ import annotations

from collections.abc import Callable

PartProgress = Callable[[str, float, float], None]
"""Called with (part, done, total): the part's name, and the steps or clips of it. What it raises ends the work."""


def unwatched(part: str, done: float, total: float) -> None:
    """Report progress to nobody."""
