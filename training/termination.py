"""SIGTERM during training: the step under way is finished, its state saved, and the process exits with 143.

Schedulers send SIGTERM before they take a machine away. All processes of a run stop after the same step, also if the
signal reached only one of them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(SystemExit):
    """End of a run by SIGTERM, after its state was saved; exit code 143."""

    def __init__(self, phase: str, step: int) -> None:
        super().__init__(128 + signal.SIGTERM)
        self.phase, self.step = phase, step

    def __str__(self) -> str:
        return f"{self.phase}: stopped by SIGTERM; the state of step {self.step} is saved"


class Termination:
    """Request to stop, set by SIGTERM while `watched`."""

    def __init__(self) -> None:
        self.is_asked = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take SIGTERM as a request during the block, which must run in the main thread."""
        before = signal.signal(signal.SIGTERM, self._ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _ask(self, *_: object) -> None:
        self.is_asked = True
