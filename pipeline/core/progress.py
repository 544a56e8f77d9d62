"""Progress: the callback that work reports to, and the watcher that shows a build's work as it advances.

The watcher travels in a context variable, so that flows and tasks need no parameter that a scheduler would store. It
is also how a build stops: after Ctrl-C the next report of any work raises KeyboardInterrupt there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

Progress = Callable[[float, float], None]
"""Called with (done, total) in the unit that the work counts in. What it raises ends the work."""


def silent(done: float, total: float) -> None:
    """Report progress to nobody."""


class Watcher(Protocol):
    """Display of the work under way."""

    def begin(self, subject: str, name: str) -> Progress:
        """Show that work starts on a film or on the data set; the result is called as it advances."""
        ...

    def end(self, subject: str, name: str, outcome: str) -> None:
        """Show that it ended: `done`, `unchanged` or `failed`."""
        ...


class Unwatched:
    """Watcher that shows nothing."""

    def begin(self, subject: str, name: str) -> Progress:  # noqa: ARG002
        """Return a progress that goes nowhere."""
        return silent

    def end(self, subject: str, name: str, outcome: str) -> None:
        """Show nothing."""


watcher: ContextVar[Watcher] = ContextVar("watcher", default=Unwatched())  # noqa: B039 - it has no state


@dataclass
class Watch:
    """One piece of work under way; called with (done, total) like any progress."""

    report: Progress
    changed: bool = True
    """False if the work left everything as it was; set by the work."""

    def __call__(self, done: float, total: float) -> None:
        """Report to the watcher; raises KeyboardInterrupt when the build is to stop."""
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
