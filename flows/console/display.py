"""Progress display: a bar with the time left for each piece of work; on a plain stream, a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from flows.console.terminal import console, say
from pipeline.core.plain_text import printable

SECONDS_BETWEEN_LINES = 30.0


class Display:
    """The bars of one command, by name. A silent one shows nothing: of several processes, one alone speaks."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._bars: dict[str, TaskID] = {}
        self._said = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=console,
            disable=silent or not console.is_terminal,
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bars during the block."""
        with self._progress:
            yield

    def say(self, line: str) -> None:
        """A line that stays."""
        if not self._silent:
            say(line)

    def begin(self, name: str) -> None:
        """Show a bar for work of unknown size."""
        self._bars[name] = self._progress.add_task(printable(name), total=None, figures="")

    def move(self, name: str, done: float, total: float, figures: str = "") -> None:
        """Move a bar, begun now if it is new; a total of 0 is an unknown one."""
        if name not in self._bars:
            self.begin(name)
        self._progress.update(self._bars[name], completed=done, total=total or None, figures=figures)
        if total and not console.is_terminal and time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self.say(f"  {name}: " + ", ".join(filter(None, (f"{done / total:.0%}", figures))))

    def end(self, name: str) -> None:
        """Take a bar away."""
        self._progress.remove_task(self._bars.pop(name))
