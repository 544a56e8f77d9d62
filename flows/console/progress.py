"""Progress bars of a build: a bar per film with the time left on a terminal, a line per finished stage elsewhere.

They are also how a build stops: after Ctrl-C the next progress report of any stage raises KeyboardInterrupt there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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

GRACE_SECONDS = 8.0
"""How long a stop may take before the process just ends; nothing is ever half-written under its final name."""
STOPPED = "stopped; what is finished is kept, the same command goes on from here"


def _leave() -> None:
    """End the process, whatever its threads wait for."""
    console.show_cursor(True)
    say(STOPPED, "yellow")
    os._exit(130)


class Bars:
    """One bar per film with its present stage and time left; on a plain stream, a line per finished stage."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._tasks: dict[tuple[str, str], tuple[TaskID, float]] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def begin(self, subject: str, stage: str) -> Report:
        """Show the stage's own bar under the film's name."""
        task = self._progress.add_task(printable(f"{subject}  {stage}"), total=None)
        self._tasks[subject, stage] = task, time.monotonic()

        def report(done: float, total: float) -> None:
            self._progress.update(task, completed=done, total=total or None)
            if self._stopping.is_set():
                raise KeyboardInterrupt

        return report

    def end(self, subject: str, stage: str, outcome: str) -> None:
        """Take the bar away and leave a line, unless nothing was to be done."""
        task, started = self._tasks.pop((subject, stage))
        self._progress.remove_task(task)
        if outcome != "unchanged":
            say(f"  {subject}  {stage}: {outcome} ({time.monotonic() - started:.1f} s)")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Show the bars, and turn Ctrl-C or SIGTERM into a clean stop; a second one leaves everything and is gone."""

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            if self._stopping.is_set():
                _leave()
            self._stopping.set()
            # Ctrl-C has reached Prefect's temporary server too, and Prefect would try for minutes to tell it the end
            hurry.start()
            say("stopping; once more to stop at once")

        hurry = threading.Timer(GRACE_SECONDS, _leave)
        hurry.daemon = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        token = watcher.set(self)
        try:
            with self._progress:
                yield
        finally:
            hurry.cancel()
            watcher.reset(token)
            for number, handler in before.items():
                signal.signal(number, handler)
