"""SIGTERM or Ctrl-C during training: the step in progress is finished, its state saved, and the process exits.

Schedulers send SIGTERM before they take a machine away. All processes of a run stop after the same step, even if only
one process got the signal. The exit code is 143 after SIGTERM and 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SAME_SECONDS = 1.0
"""Time within which two signals count as one: a launcher passes on a Ctrl-C that its processes also get directly."""


class Terminated(SystemExit):
    """End of a run by a signal, after its state was saved; exit code 128 + the signal's number."""

    def __init__(self, phase: str, step: int, by: int = signal.SIGTERM) -> None:
        super().__init__(128 + by)
        self.phase, self.step, self.by = phase, step, by

    def __str__(self) -> str:
        name = "Ctrl-C" if self.by == signal.SIGINT else "SIGTERM"
        saved = f"the state of step {self.step} is saved" if self.step else "no step was done"
        return f"{self.phase}: stopped by {name}; {saved}"


class Termination:
    """Request to stop, set by SIGTERM or Ctrl-C while `watched`."""

    def __init__(self) -> None:
        self.by: int | None = None
        """The first signal; None while there was none."""
        self._last = 0.0

    @contextmanager
    def watched(self, say: Callable[[str], None]) -> Iterator[None]:
        """Take both signals as a request during the block, which must run in the main thread.

        Args:
            say: called at the first Ctrl-C, with a line that says what happens now.

        Raises:
            KeyboardInterrupt: Ctrl-C again, a second or more after the first signal.
        """

        watched = os.getpid()

        def ask(number: int, _: object) -> None:
            if os.getpid() != watched:  # a process of the data loader that has just begun
                return
            last, self._last = self._last, time.monotonic()
            if self.by is None:
                self.by = number
                if number == signal.SIGINT:
                    say("stopping when the step in progress is done and saved; press Ctrl-C again to stop at once")
            elif number == signal.SIGINT and self._last - last > _SAME_SECONDS:
                raise KeyboardInterrupt

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
