"""Progress bars of a command: the watcher that shows its work, stage by stage.

They are also how a command stops: after Ctrl-C the next progress report of any stage raises KeyboardInterrupt there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from flows.console.display import Display
from flows.console.terminal import console, say
from pipeline.core.progress import Progress as Report
from pipeline.core.progress import watcher

GRACE_SECONDS = 8.0
"""Longest time for a stop before the process just ends; nothing is ever half-written under its final name."""
STOPPED = "stopped; what is finished is kept, the same command goes on from here"


def _leave() -> None:
    """End the process, whatever its threads wait for."""
    console.show_cursor(True)
    say(STOPPED, "yellow")
    os._exit(130)


class Bars:
    """The watcher of a command: one bar per film and stage, a line per finished stage, and a clean stop."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._started: dict[str, float] = {}
        self._display = Display()

    def begin(self, subject: str, stage: str) -> Report:
        """Show the stage's own bar under the film's name."""
        name = f"{subject}  {stage}"
        self._display.begin(name)
        self._started[name] = time.monotonic()

        def report(done: float, total: float) -> None:
            self._display.move(name, done, total)
            if self._stopping.is_set():
                raise KeyboardInterrupt

        return report

    def end(self, subject: str, stage: str, outcome: str) -> None:
        """Take the bar away and leave a line, unless nothing was to be done."""
        name = f"{subject}  {stage}"
        self._display.end(name)
        seconds = time.monotonic() - self._started.pop(name)
        if outcome != "unchanged":
            say(f"  {name}: {outcome} ({seconds:.1f} s)")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Show the bars, and turn Ctrl-C or SIGTERM into a clean stop; a second one leaves everything and is gone."""

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            if self._stopping.is_set():
                _leave()
            self._stopping.set()
            # Ctrl-C has reached Prefect's temporary server too; Prefect would try for minutes to report the end to it
            hurry.start()
            say("stopping; once more to stop at once")

        hurry = threading.Timer(GRACE_SECONDS, _leave)
        hurry.daemon = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        token = watcher.set(self)
        try:
            with self._display.shown():
                yield
        finally:
            hurry.cancel()
            watcher.reset(token)
            for number, handler in before.items():
                signal.signal(number, handler)
