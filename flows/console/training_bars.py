"""How training shows on a terminal: bars with the time left, and lines that stay; on a plain stream, lines alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from flows.console.terminal import console, say
from pipeline.core.plain_text import printable
from training.trainer import StepReport

_SECONDS_BETWEEN_LINES = 30.0


class TrainBars:
    """A bar for what is being encoded or trained. Where several processes train, the first alone shows anything."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._tasks: dict[str, TaskID] = {}
        self._said = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=console,
            disable=silent or not console.is_terminal,
        )

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the bars."""
        with self._progress:
            yield

    def say(self, line: str) -> None:
        """A line that stays."""
        if not self._silent:
            say(line)

    def feature(self, name: str, done: float, total: float) -> None:
        """How far a feature is encoded."""
        self._move(f"encoding {name}", done, total, "clips")

    def step(self, report: StepReport) -> None:
        """How a step of training went; validations leave a line."""
        figures = report.figures
        told = f"loss {figures['loss']:.4f}"
        self._move(report.phase, report.step, report.steps, told)
        seen = {name: value for name, value in figures.items() if name.startswith("val/")}
        if seen:
            held_out = ", ".join(f"{name.removeprefix('val/')} {value:.4f}" for name, value in seen.items())
            self.say(f"  {report.phase}, step {report.step}: {told}; held out: {held_out}")

    def _move(self, name: str, done: float, total: float, figures: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(printable(name), total=total, figures="")
        self._progress.update(self._tasks[name], completed=done, total=total, figures=figures)
        if not console.is_terminal and time.monotonic() - self._said > _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self.say(f"  {name}: {done} of {total}, {figures}")
