"""Request limit: requests in flight that follow what a server bears, and the pause that all of them share.

    async with limit.place() as place:     # waits for its turn, in order of arrival
        reply = await send(request)
        limit.answered(place)

The limit moves as TCP's window does. It opens at a few requests and doubles with every round of answers up to the
configured number; a refusal (429) or answers that take three times as long as usual lower it, once for all requests in
flight at the time, and after that it grows by one a round. A refusal also pauses every request, for as long as the
server asks (ten minutes at most) or, if it does not, twice as long each time. After silence a single request goes out
as a probe. A request under suspicion of having killed the server runs alone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_LONGEST_OWN_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 60.0, 600.0
"""Longest pause after a refusal that names none, and after one that does."""
_SAME_PAUSE_SECONDS = 1.0
"""Refusals of requests in flight put the end of a pause off by less."""
_FIRST = 8.0
_SLOW, _SLOWER_SHARE = 3.0, 0.75
_RECENT, _USUAL = 1 / 8, 1 / 64
_QUICK_SECONDS = 0.1
"""Answers faster than this are never slow: their times are those of the network and of this machine."""


@dataclass(frozen=True)
class Place:
    """Permission for one request, from the time it was given."""

    started: float
    epoch: int
    """Number of times that the limit had been lowered before."""


class RequestLimit:
    """Limit of the requests in flight to one server, for one event loop."""

    def __init__(self, most: int, first_pause_seconds: float) -> None:
        """Open at a few requests.

        Args:
            most: number of requests in flight that is never exceeded.
            first_pause_seconds: pause after a first refusal that names none.
        """
        self.most = most
        self.limit = min(_FIRST, most)
        self.troubles = 0
        """Times in a row that the limit was lowered without an answer in between."""
        self.closed_by: Exception | None = None
        """Error of `close`."""
        self._first_pause_seconds = first_pause_seconds
        self._doubles_until = float(most)
        self._epoch = 0
        self._open = 0
        self._has_suspect = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._suspects: deque[asyncio.Future[None]] = deque()
        self._resumes_at = 0.0
        self._answered_at = 0.0
        self._usual = self._recent = 0.0

    @asynccontextmanager
    async def place(self, *, alone: bool = False) -> AsyncIterator[Place]:
        """Wait for a place in flight; `alone`: for one with no other request beside it, before all others.

        Raises:
            Exception: that of `close`.
        """
        if self.closed_by:
            raise self.closed_by
        turn = asyncio.get_running_loop().create_future()
        (self._suspects if alone else self._waiting).append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(alone=alone)
            raise
        try:
            yield Place(time.monotonic(), self._epoch)
        finally:
            self._leave(alone=alone)

    def answered(self, place: Place) -> None:
        """Note an answer: the limit grows, unless answers have become slow."""
        now = time.monotonic()
        seconds = now - place.started
        first = self._usual == 0
        self._usual = seconds if first else self._usual + (seconds - self._usual) * _USUAL
        self._recent = seconds if first else self._recent + (seconds - self._recent) * _RECENT
        self._answered_at, self.troubles = now, 0
        slow = self._recent > max(_SLOW * self._usual, _QUICK_SECONDS)
        if slow and place.epoch == self._epoch:
            self._lower(self.limit * _SLOWER_SHARE)
        else:
            self.limit = min(self.limit + (1 if self.limit < self._doubles_until else 1 / self.limit), self.most)
        self._admit()

    def refused(self, place: Place, seconds: float) -> float:
        """Note a refusal: half the requests, after a pause of at least `seconds`.

        Returns:
            Seconds until the next request, if this refusal has put it off; else 0.
        """
        if place.epoch == self._epoch:
            self.troubles += 1
            growing = self._first_pause_seconds * 2.0 ** (self.troubles - 1) * random.uniform(0.5, 1.5)
            seconds = max(min(growing, _LONGEST_OWN_PAUSE_SECONDS), seconds)
            self._lower(self.limit / 2)
        pause = min(seconds, LONGEST_PAUSE_SECONDS)
        resumes_at, before = time.monotonic() + pause, self._resumes_at
        self._resumes_at = max(before, resumes_at)
        return pause if resumes_at > before + _SAME_PAUSE_SECONDS else 0.0

    def unanswered(self, place: Place) -> None:
        """Note a request without an answer; if no other request got one either, the next is a probe."""
        if self._answered_at < place.started and place.epoch == self._epoch:
            self.troubles += 1
            self._lower(self.limit / 2)
            self.limit = 1.0

    def close(self, error: Exception) -> None:
        """Give no more places: those waiting, now or later, get the error; requests in flight go on."""
        self.closed_by = self.closed_by or error
        for turn in (*self._waiting, *self._suspects):
            if not turn.done():
                turn.set_exception(self.closed_by)

    def _lower(self, limit: float) -> None:
        self.limit = self._doubles_until = max(limit, 1.0)
        self._epoch += 1

    def _admit(self) -> None:
        """Let waiting requests start while there is room; during a pause, look again at its end."""
        pause = self._resumes_at - time.monotonic()
        if pause > 0:
            asyncio.get_running_loop().call_later(pause, self._admit)
            return
        while self._has_room() and (queue := self._suspects or self._waiting):
            is_suspect = queue is self._suspects
            turn = queue.popleft()
            if not turn.done():
                self._has_suspect = is_suspect
                self._open += 1
                turn.set_result(None)

    def _has_room(self) -> bool:
        return self._open == 0 if self._suspects else not self._has_suspect and self._open + 1 <= self.limit

    def _leave(self, *, alone: bool) -> None:
        self._open -= 1
        if alone:
            self._has_suspect = False
        self._admit()
