"""Progress bars of a command, one per stage, and its clean stop.

After Ctrl-C the next progress report of any stage raises KeyboardInterrupt in that stage.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from flows.console.display import Display
from flows.console.terminal import console, say
from pipeline.core.progress import Progress as Report
from pipeline.core.progress import watcher

STOP_SECONDS = 8.0
"""Timeout of a clean stop; then the process exits at once, which is safe: files get their final name when complete."""
STOPPED = "stopped; finished work is kept, the same command resumes from here"


def _exit_now() -> None:
    """Exit without waiting for threads."""
    console.show_cursor(True)
    say(STOPPED, "yellow")
    os._exit(130)


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
