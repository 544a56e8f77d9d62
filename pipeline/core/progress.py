"""Progress: the callback that long work calls, and the watcher that displays the progress of a build.

The watcher is a context variable, so that flows and tasks need no parameter that a scheduler would store. It also
stops a build: after Ctrl-C the next progress call of any work raises KeyboardInterrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

Progress = Callable[[float, float], None]
"""Callback with (done, total) in the unit of the work. An exception that it raises ends the work."""


def silent(done: float, total: float) -> None:
    """Ignore progress."""


class Watcher(Protocol):
    """Display of the work in progress."""

    def begin(self, subject: str, name: str) -> Progress:
        """Show that work starts on a film or on the dataset; return the callback for its progress."""
        ...

    def end(self, subject: str, name: str, outcome: str) -> None:
        """Show that the work ended: `done`, `unchanged` or `failed`."""
        ...

    def say(self, line: str) -> None:
        """Show a line at once, such as what the work is waiting for."""
        ...


class Unwatched:
    """Watcher that shows nothing."""

    def begin(self, subject: str, name: str) -> Progress:  # noqa: ARG002
        """Return a callback that ignores progress."""
        return silent

    def end(self, subject: str, name: str, outcome: str) -> None:
        """Show nothing."""

    def say(self, line: str) -> None:
        """Show nothing."""


watcher: ContextVar[Watcher] = ContextVar("watcher", default=Unwatched())  # noqa: B039 - it has no state


@dataclass
class Watch:
    """Progress callback of work in progress, and its outcome."""

    report: Progress
    changed: bool = True
    """Outcome, set by the work: False if the work changed nothing."""

    def __call__(self, done: float, total: float) -> None:
        """Report to the watcher; raise KeyboardInterrupt after Ctrl-C."""
        self.report(done, total)


@contextmanager
def watched(subject: str, name: str) -> Iterator[Watch]:
    """Show the work of this block, and its outcome, on the watcher."""
    watch = Watch(watcher.get().begin(subject, name))
    outcome = "failed"
    try:
        yield watch
        outcome = "done" if watch.changed else "unchanged"
    finally:
        watcher.get().end(subject, name, outcome)
