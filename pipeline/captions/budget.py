"""Request budget: the number of requests that one build may send to a model server, attempts and repairs included.

A build sends none any more once the server is known to reject them all, as several subjects rejected in a row show.
Both are counted together in a block `counted`: those of all films of a build in this process, of one film at a worker,
of one trial. Outside of such a block each task counts by itself, which is what the tasks of a Ray cluster do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pipeline.core.errors import UserError


class BudgetError(UserError):
    """The budget is used up, or was closed."""


class _Count:
    def __init__(self) -> None:
        self.requests = 0
        self.rejected = 0
        self.closed_by: UserError | None = None
        self.lock = threading.Lock()


_count: ContextVar[_Count | None] = ContextVar("requests_sent", default=None)


@contextmanager
def counted() -> Iterator[None]:
    """Count the requests sent in this block together, those of threads that run in a copy of its context too."""
    token = _count.set(_Count())
    try:
        yield
    finally:
        _count.reset(token)


class Budget:
    """Budget of the block `counted` that it is made in."""

    def __init__(self, most: int | None) -> None:
        """Begin at what the block has sent so far; None: without bound."""
        self.most = most
        self._count = _count.get() or _Count()

    def take(self) -> None:
        """Count one more request.

        Raises:
            BudgetError: the build has sent as many as it may, or the budget is closed.
        """
        with self._count.lock:
            if self._count.closed_by:
                raise BudgetError(f"nothing more is asked by this command, since {self._count.closed_by}")
            if self.most is not None and self._count.requests >= self.most:
                raise BudgetError(f"the {self.most} requests of this command (`most_requests`) are used up")
            self._count.requests += 1

    def answered(self) -> None:
        """End the row of rejected subjects."""
        with self._count.lock:
            self._count.rejected = 0

    def rejected(self) -> int:
        """Count one more rejected subject, and return how many there are in a row."""
        with self._count.lock:
            self._count.rejected += 1
            return self._count.rejected

    def close(self, error: UserError) -> None:
        """Let the block send nothing more: the server would answer every request with this error."""
        self._count.closed_by = error
