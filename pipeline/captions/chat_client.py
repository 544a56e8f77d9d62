"""Chat client: requests to one model server by `openai`, repeated by `tenacity`.

    async with ChatClient(endpoint) as client:
        reply = await client.chat([user("What is this?", [Picture(jpeg)])])
        print(reply.text)

A request is sent again, after a pause, on every transient failure: timeout, 5xx, a connection closed early, a body that
is not the protocol's JSON. It is not sent again when the server rejects it. All requests share what concerns the
server: the slots, the pause that a 429 asks for, and one probe that waits for a server that has died. A 429 also halves
the slots; they come back one a round of answers, as TCP's window does. The requests that the server was answering when
it died are then sent one at a time; the request at which it dies again is given up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType

import httpx2
import tenacity

from pipeline.captions.chat_protocol import (
    BusyError,
    ChatProtocol,
    ChatRequest,
    CutOffError,
    FailedError,
    UnreachableError,
)
from pipeline.captions.endpoint import (
    Budget,
    BudgetError,
    Endpoint,
    EndpointDownError,
    EndpointLostError,
    Message,
    Reply,
    RequestError,
)
from pipeline.core.errors import UserError
from pipeline.core.progress import watcher

LONGEST_PAUSE_SECONDS = 600.0
"""Longest pause after a refusal, whatever the server asks for."""
_LONGEST_OWN_PAUSE_SECONDS, _TOLD_PAUSE_SECONDS = 60.0, 10.0
"""Longest pause after a refusal that names none, and shortest pause that is reported."""
_LONGEST_PROBE_PAUSE_SECONDS = 5.0
_PROBES_PER_ATTEMPT, _DELAYS_PER_ATTEMPT = 2, 5
"""Least probes of a server that does not answer (about 22 seconds for four attempts), and most delays of a request."""
_LATER = "it runs, but wants fewer requests: go on later, or set a lower `concurrency`"
_answered: set[tuple[str, str]] = set()
"""Servers that have answered in this process, whose clients last for one batch of a film or one try of a task."""


@dataclass
class _Tries:
    """History of one request."""

    delays: int = 0
    """Times that the server was not there or busy."""
    cut_off: int = 0
    is_suspect: bool = False
    """True if the server died while answering it."""

    @property
    def alone(self) -> bool:
        """True if it is sent with no other request beside it: a server may die and be back unnoticed."""
        return self.is_suspect or self.cut_off > 1


class ChatClient:
    """Client of one endpoint with a bounded number of concurrent requests; an asynchronous context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Prepare the client; nothing is sent.

        Raises:
            UserError: the address or the key cannot be used.
        """
        self.endpoint = endpoint
        self.budget = Budget(endpoint.most_requests)
        self._protocol = ChatProtocol(endpoint)
        self._server = (endpoint.address, endpoint.model)
        self._slots = asyncio.Semaphore(endpoint.concurrency)
        self._limit, self._kept_back = endpoint.concurrency, 0
        """Slots to use, and slots that are not free again because they exceed this limit."""
        self._answers = self._in_flight = 0
        """Answers since the limit last changed, and requests that the server has not answered yet."""
        self._alone, self._probe, self._stopped = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
        self._stopped_by: UserError | None = None
        self._resumes_at = self._refused_at = self._died_at = 0.0
        self._refusals = 0
        """Refusals in a row without an answer in between. Refusals of requests in flight together count once."""

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._protocol.close()

    def stop(self, error: UserError) -> None:
        """Send nothing more: requests in flight end, any other `chat` raises the error."""
        self._stopped_by = self._stopped_by or error
        self._stopped.set()

    def stop_all(self, error: UserError) -> None:
        """Stop this client, and every other of the same build: the server would reject their requests too."""
        self.budget.close(error)
        self.stop(error)

    def chat(self, messages: Sequence[Message], pattern: str = "") -> Awaitable[Reply]:
        """Return the model's reply to a conversation, verbatim but for the key; empty if there is no text.

        Args:
            messages: the conversation.
            pattern: regular expression that guides the reply, if the server can do so.

        Raises:
            EndpointDownError: no answer from the address, or it stays overloaded.
            UserError: the key, the model or the path is wrong, or the budget is used up.
            RequestError: only this request fails, in every attempt.
        """
        first_pause = self.endpoint.first_pause_seconds
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(FailedError),
            stop=tenacity.stop_after_attempt(self.endpoint.attempts),
            wait=tenacity.wait_exponential(first_pause, max=60) + tenacity.wait_random(0, first_pause),
            retry_error_callback=self._give_up,
        )
        return attempts(self._answer, self._protocol.request(messages, pattern), _Tries())

    async def _answer(self, request: ChatRequest, tries: _Tries) -> Reply:
        """Return the reply of one attempt, which outlasts refusals, a restart of the server and keys it does not know.

        Raises:
            FailedError: the attempt failed; the next one may succeed.
            UserError: as `chat`.
        """
        while True:
            body = request.encoded()  # before a slot is free: it takes milliseconds
            async with self._slot(alone=tries.alone) as started:
                try:
                    self.budget.take()
                    with self._protocol.explained(request):
                        async with asyncio.timeout(self.endpoint.timeout_seconds):
                            post = self._protocol.openai.post
                            answer = await post("/chat/completions", content=body, cast_to=httpx2.Response)
                        reply = self._protocol.reply(request, answer.content)
                        _answered.add(self._server)
                        self._note_answer()
                        return reply
                except UnreachableError as failure:
                    self._note_delay(tries, failure)
                    await self._until_back(failure)
                except BusyError as failure:
                    self._note_delay(tries, failure)
                    await self._pause(failure, started)
                except CutOffError as failure:
                    # While the slot is held: the next suspect must not meet a server that is about to end.
                    await self._suspect(tries, failure, started)
                except UserError as error:
                    self._stop_for(error)
                    raise

    def _stop_for(self, error: UserError) -> None:
        """Send nothing more, unless the error concerns one request."""
        if isinstance(error, BudgetError):
            self.stop(error)
        elif not isinstance(error, RequestError):
            self.stop_all(error)

    async def _give_up(self, state: tenacity.RetryCallState) -> Reply:
        """Blame the request if the server still answers, or the server."""
        assert state.outcome
        most, failure = self.endpoint.attempts, state.outcome.exception()
        if await self._protocol.is_up():
            raise self._only_this(failure, most)
        raise self._unusable(f"{failure} after {most} attempts", EndpointLostError)

    @asynccontextmanager
    async def _slot(self, *, alone: bool) -> AsyncIterator[float]:
        """Wait for a slot and for the end of a pause, and return the time; `alone`: with no other request in flight."""
        async with AsyncExitStack() as held:
            if alone:
                await held.enter_async_context(self._alone)
                self._raise_limit(self.endpoint.concurrency)  # it needs every slot
            for _ in range(self.endpoint.concurrency if alone else 1):
                await self._slots.acquire()
                held.callback(self._free_slot)
            while (pause := self._resumes_at - time.monotonic()) > 0 and not self._stopped_by:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), pause)
            if self._stopped_by:
                raise self._stopped_by
            self._in_flight += 1
            try:
                yield time.monotonic()
            finally:
                self._in_flight -= 1

    def _free_slot(self) -> None:
        if self.endpoint.concurrency - self._kept_back > self._limit:
            self._kept_back += 1
        else:
            self._slots.release()

    def _raise_limit(self, limit: int) -> None:
        self._limit, self._answers = limit, 0
        while self.endpoint.concurrency - self._kept_back < limit:
            self._kept_back -= 1
            self._slots.release()

    def _note_answer(self) -> None:
        """Note an answer: the server is not overloaded, and after a round of answers it may bear one request more."""
        self._refusals = 0
        self._answers += 1
        if self._limit < self.endpoint.concurrency and self._answers >= self._limit:
            self._raise_limit(self._limit + 1)

    def _note_delay(self, tries: _Tries, failure: FailedError) -> None:
        """Count one more time that the server was not there for a request."""
        tries.delays += 1
        if tries.delays >= _DELAYS_PER_ATTEMPT * self.endpoint.attempts:
            raise self._only_this(failure, tries.delays) from None

    async def _pause(self, failure: BusyError, started: float) -> None:
        """Let all requests wait, for as long as the server asks, or twice as long each time.

        Raises:
            EndpointLostError: the server has refused too many requests in a row, and answers none.
        """
        seconds = failure.pause_seconds
        if started >= self._refused_at:  # not in flight at an earlier refusal
            self._refusals += 1
            self._refused_at = time.monotonic()
            if not self._alone.locked():
                self._limit, self._answers = max(self._limit // 2, 1), 0
            own = self.endpoint.first_pause_seconds * 2.0 ** (self._refusals - 1) * _jitter()
            seconds = max(min(own, _LONGEST_OWN_PAUSE_SECONDS), seconds)
        if self._refusals >= self.endpoint.attempts and self._in_flight == 1:  # it answers no other one either
            remedy = _LATER if await self._protocol.is_up() else self.endpoint.remedy
            reason = f"{failure} after {self._refusals} refusals in a row"
            raise self._unusable(reason, EndpointLostError, remedy) from None
        pause = min(seconds, LONGEST_PAUSE_SECONDS)
        before, self._resumes_at = self._resumes_at, max(self._resumes_at, time.monotonic() + pause)
        if pause >= _TOLD_PAUSE_SECONDS and self._resumes_at > before + 1:
            until = datetime.now().astimezone() + timedelta(seconds=pause)
            hours = f", though the server asks for {seconds / 3600:,.1f} hours" if seconds > pause else ""
            server = f"the model server at {self.endpoint.address} asks to wait ({failure})"
            watcher.get().say(f"{server}: nothing is sent until {until:%H:%M:%S}{hours}")

    async def _suspect(self, tries: _Tries, failure: CutOffError, started: float) -> None:
        """Put a request under suspicion if the server died while answering it, and wait until the server is back.

        Raises:
            CutOffError: the server lives.
            EndpointDownError: the server stays away.
            RequestError: it died at this request before.
        """
        tries.cut_off += 1
        if self._died_at < started and not await self._protocol.is_up():
            await self._until_back(failure)
        if self._died_at < started:
            raise failure
        if tries.is_suspect:
            raise RequestError(f"the model server at {self.endpoint.address} died twice while answering this request")
        tries.is_suspect = True

    async def _until_back(self, failure: FailedError) -> None:
        """Wait until the server answers a probe; one request waits for all, and a line says so.

        A server that has answered in this process is given as long as the attempts of a request: it may be restarting.

        Raises:
            EndpointDownError: it stays away; a server that was never reached needs the user, so it is not lost.
        """
        endpoint = self.endpoint
        async with self._probe:
            if self._stopped_by:  # by the one that waited: a probe for each of the others may take seconds
                raise self._stopped_by
            has_answered = self._server in _answered
            is_new = isinstance(failure, UnreachableError) and not has_answered
            patience = endpoint.attempts * endpoint.timeout_seconds if has_answered else 0.0
            gives_up_at, pause, probes = time.monotonic() + patience, endpoint.first_pause_seconds, 1
            while not await self._protocol.is_up():
                self._died_at = time.monotonic()
                enough = probes >= _PROBES_PER_ATTEMPT * endpoint.attempts and self._died_at >= gives_up_at
                if self._stopped_by or enough:
                    kind = EndpointDownError if is_new else EndpointLostError
                    raise self._unusable(f"{failure} after {probes} attempts", kind)
                if probes == 1:
                    watcher.get().say(f"waiting for the model server at {endpoint.address}: {failure}")
                await asyncio.sleep(pause * _jitter())
                pause, probes = min(2 * pause, _LONGEST_PROBE_PAUSE_SECONDS), probes + 1

    def _unusable(self, reason: str, kind: type[UserError], remedy: str | None = None) -> UserError:
        """Send nothing more because of this reason, and return it as an error."""
        remedy = self.endpoint.remedy if remedy is None else remedy
        text = f"the model server at {self.endpoint.address} cannot be used: {reason}"
        error = kind(f"{text}; {remedy}" if remedy else text)
        self.stop(error)
        return error

    def _only_this(self, failure: BaseException | None, attempts: int) -> RequestError:
        address = self.endpoint.address
        return RequestError(f"the model server at {address} fails on this request after {attempts} attempts: {failure}")


def _jitter() -> float:
    return random.uniform(0.5, 1.5)
