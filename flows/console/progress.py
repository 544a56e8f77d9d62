"""Progress bars with the time left for each piece of work; without a terminal, a line every 30 seconds.

After Ctrl-C the next progress report of any stage raises KeyboardInterrupt in that stage.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from types import FrameType
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
from pipeline.core.progress import Progress as Report
from pipeline.core.progress import watcher

if TYPE_CHECKING:
    from training.trainer import StepReport

SECONDS_BETWEEN_LINES = 30.0
STOP_SECONDS = 8.0
"""Timeout of a clean stop. Exiting at once after it is safe, because files get their final name only when complete."""
STOPPED = "stopped; finished work is kept, the same command resumes from here"


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
        redirect_stdout=False,  # imported packages keep a reference to the streams
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

    phases: Mapping[str, int] = {}
    """Number of examples in all steps of each phase of the run, in order."""

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__(silent=silent)
        self._first: dict[str, tuple[int, float]] = {}

    def feature(self, name: str, done: float, total: float) -> None:
        """Show the progress of encoding a feature."""
        self.move(f"encoding {name}", done, total, f"{done:g} of {total:g} clips")

    def step(self, report: StepReport) -> None:
        """Show a training step; a validation prints a permanent line."""
        figures = report.figures
        loss = f"loss {figures['loss']:.4f}"
        phases = list(self.phases)
        number = f" ({phases.index(report.phase) + 1} of {len(phases)})" if report.phase in phases else ""
        done = f"step {report.step} of {report.steps}, {loss}{self._left(report)}"
        self.move(f"{report.phase}{number}", report.step, report.steps, done)
        seen = {name: value for name, value in figures.items() if name.startswith("val/")}
        if seen:
            held_out = ", ".join(f"{name.removeprefix('val/')} {value:.4f}" for name, value in seen.items())
            self.say(f"  {report.phase}, step {report.step}: {loss}; held out: {held_out}")

    def _left(self, report: StepReport) -> str:
        """Return the time left of the phase and, as if its examples took the same time, of the later ones."""
        step, now = report.step, time.monotonic()
        first, began = self._first.setdefault(report.phase, (step, now))
        if step == first or report.phase not in self.phases:
            return ""
        step_seconds = (now - began) / (step - first)
        left = step_seconds * (report.steps - step)
        phases = list(self.phases)
        later = sum(self.phases[each] for each in phases[phases.index(report.phase) + 1 :])
        whole = left + step_seconds * report.steps / self.phases[report.phase] * later
        return f", {_duration(left)} left" + (f", {_duration(whole)} with later phases" if later else "")


def _duration(seconds: float) -> str:
    """Return a time in the largest fitting unit."""
    for name, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


class Bars:
    """Watcher of a command: one bar per film and stage, a line per finished stage, and a clean stop."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._started: defaultdict[str, list[float]] = defaultdict(list)
        self._display = Display()

    def begin(self, subject: str, stage: str) -> Report:
        """Show a bar for a stage of a film; return its progress callback."""
        name = f"{subject}  {stage}"
        self._display.begin(name)
        self._started[name].append(time.monotonic())

        def report(done: float, total: float) -> None:
            self._display.move(name, done, total)
            if self._stopping.is_set():
                raise KeyboardInterrupt

        return report

    def end(self, subject: str, stage: str, outcome: str) -> None:
        """Remove the bar and print a line, unless the stage was up to date."""
        name = f"{subject}  {stage}"
        self._display.end(name)
        seconds = time.monotonic() - self._started[name].pop()
        if outcome != "unchanged":
            say(f"  {name}: {outcome} ({seconds:.1f} s)")

    def say(self, line: str) -> None:
        """Print a line."""
        say(line, "yellow")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Show the bars, and turn Ctrl-C or SIGTERM into a clean stop; a second signal exits at once."""

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            if self._stopping.is_set():
                _exit_now()
            self._stopping.set()
            # Ctrl-C may also have stopped a Prefect server of this terminal; Prefect would retry for minutes
            exit_timer.start()
            say("stopping; press Ctrl-C again to stop at once")

        exit_timer = threading.Timer(STOP_SECONDS, _exit_now)
        exit_timer.daemon = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        token = watcher.set(self)
        try:
            with self._display.shown():
                yield
        finally:
            exit_timer.cancel()
            watcher.reset(token)
            for number, handler in before.items():
                signal.signal(number, handler)


def _exit_now() -> None:
    """Exit without waiting for threads."""
    console.show_cursor(True)
    say(STOPPED, "yellow")
    os._exit(130)
