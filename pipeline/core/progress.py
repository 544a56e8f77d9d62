"""Progress callback: what a stage, a transfer or a step of publishing calls as it advances."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, float], None]
"""Called with (done, total) in the unit that the work counts in. What it raises ends the work."""


def silent(done: float, total: float) -> None:
    """Report progress to nobody."""
