"""Progress callback for work in named parts, such as the parts of a turn or the features of a data set."""

from __future__ import annotations

from collections.abc import Callable

PartProgress = Callable[[str, float, float], None]
"""Progress callback (part, done, total): the part's name, its steps or clips done and in total. An exception from it
ends the work."""


def unwatched(part: str, done: float, total: float) -> None:
    """Ignore progress: the default callback."""
