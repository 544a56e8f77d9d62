"""Progress display: a bar with the time left for each piece of work; without a terminal, a line every 30 seconds."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from training.trainer import StepReport

SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def importing() -> Iterator[None]:
    """Show on a terminal that the block imports the packages of the networks, which takes seconds.

    Of several processes launched together, the first one shows it.
    """
    spinner = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        redirect_stdout=False,  # what is imported keeps the streams that it finds
        redirect_stderr=False,
        disable=not console.is_terminal or os.environ.get("RANK", "0") != "0",
    )
    with spinner:
        spinner.add_task("loading torch, transformers and diffusers", total=None)
        yield


class Display:
    """Bars of one command, by name. A silent display prints nothing: of several processes, only one prints.

    Work under one name may run several times at once: each has a bar, and the newest moves and ends first.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._bars: defaultdict[str, list[TaskID]] = defaultdict(list)
        self._changing = RLock()
        self._last_line = time.monotonic()
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
        """Print a permanent line."""
        if not self._silent:
            say(line)

    def begin(self, name: str) -> None:
        """Show a bar for work of unknown size."""
        with self._changing:
            self._bars[name].append(self._progress.add_task(printable(name), total=None, figures=""))

    def move(self, name: str, done: float, total: float, figures: str = "") -> None:
        """Update a bar, adding it if new; a total of 0 means unknown."""
        with self._changing:
            if not self._bars[name]:
                self.begin(name)
            self._progress.update(self._bars[name][-1], completed=done, total=total or None, figures=figures)
        if total and not console.is_terminal and time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self.say(f"  {name}: " + ", ".join(filter(None, (f"{done / total:.0%}", figures))))

    def end(self, name: str) -> None:
        """Remove a bar."""
        with self._changing:
            self._progress.remove_task(self._bars[name].pop())


class TrainBars(Display):
    """Training reports as bars. With several processes, all but the first are silent."""

    def feature(self, name: str, done: float, total: float) -> None:
        """Show the progress of encoding a feature."""
        self.move(f"encoding {name}", done, total, f"{done:g} of {total:g} clips")

    def step(self, report: StepReport) -> None:
        """Show a training step; a validation prints a permanent line."""
        figures = report.figures
        loss = f"loss {figures['loss']:.4f}"
        self.move(report.phase, report.step, report.steps, f"step {report.step} of {report.steps}, {loss}")
        seen = {name: value for name, value in figures.items() if name.startswith("val/")}
        if seen:
            held_out = ", ".join(f"{name.removeprefix('val/')} {value:.4f}" for name, value in seen.items())
            self.say(f"  {report.phase}, step {report.step}: {loss}; held out: {held_out}")
