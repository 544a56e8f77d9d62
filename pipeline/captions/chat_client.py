"""Chat client: OpenAI's chat completions protocol over HTTP, as lmdeploy, vLLM and other servers implement it.

    async with ChatClient(endpoint) as client:
        reply = await client.chat([user("What is this?", [Picture(jpeg)])])
        print(reply.text)

A request is sent again, after a pause, on every transient failure: timeout, 429, 5xx, a connection closed early, a body
that is not the protocol's JSON. It is not sent again when the server rejects it. The remaining failures are three
errors: the service is down (waiting may help), the service rejects the client (the configuration must change), or only
this request fails. What concerns the service is met by all requests together (`request_limit.py`): they pause together,
and one probe waits for a server that has died. The requests that it was answering when it died are then sent one at a
time; the one at which it dies again is given up.

The client of the `openai` package (3.54) does less: it retries each request by itself, without a pause that others
share, and by default it keeps connections open, on which an answer sent twice is read as that of the next request. It
takes 5.4 ms of CPU for a request with eight pictures, where this one took 2.2 while it was over httpx too.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal

from pipeline.captions.budget import Budget, BudgetError
from pipeline.captions.chat_transport import (
    ChatTransport,
    CutOffError,
    FailedError,
    ForbiddenError,
    RefusedError,
    RejectedError,
    SilentError,
    UnreachableError,
    UnusableError,
)
from pipeline.captions.dialect import FORMAT, LENGTH, TEMPERATURE, TILES, DialectRequest, Server
from pipeline.captions.messages import Message, Reply
from pipeline.captions.request_limit import Place, RequestLimit
from pipeline.core.errors import UserError
from pipeline.core.progress import watcher

_MOST_REFUSALS = 5
_TOLD_PAUSE_SECONDS = 10.0
"""Shortest pause after a refusal that is told."""
_LONGEST_PROBE_PAUSE_SECONDS = 5.0
_PROBES_PER_ATTEMPT = 2
"""Least probes of a server that does not answer: with the four attempts of the default they take about 22 seconds."""
_answered: set[Server] = set()
"""Servers that have answered in this process, whose clients last for one batch of a film or one try of a task."""
_LATER = "it runs, but wants fewer requests: go on later, or set a lower `concurrency`"


class EndpointDownError(UserError):
    """The service does not answer, or is overloaded."""


class EndpointLostError(EndpointDownError):
    """The service was reached, but has ended or is overloaded: the same request may succeed later."""


class RequestError(UserError):
    """The service works, but cannot answer this one request."""


@dataclass(frozen=True)
class Endpoint:
    """Address of the service, and the parameters of requests to it."""

    address: str
    """Base address including the version, such as `http://127.0.0.1:23333/v1`."""
    model: str
    api_key_env: str = ""
    """Name of the environment variable that holds the key; the key itself is in no stored object."""
    concurrency: int = 16
    timeout_seconds: float = 120
    attempts: int = 4
    max_tokens: int = 256
    temperature: float = 0
    tiles: bool = True
    """False: the server rejects `max_dynamic_patch`."""
    guided: Literal["auto", "on", "off"] = "auto"
    """Replies guided by a pattern: if the server can, always, or never."""
    most_requests: int | None = None
    """Budget of the build, see `budget.py`."""
    first_pause_seconds: float = 0.5
    remedy: str = ""
    """Remedy shown when the service is not running, such as the command that starts it."""


@dataclass
class _Tries:
    """History of one request."""

    failed: int = 0
    refused: int = 0
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
        self._transport = ChatTransport(
            endpoint.address, endpoint.model, endpoint.api_key_env, endpoint.timeout_seconds
        )
        self.budget = Budget(endpoint.most_requests)
        self._limit = RequestLimit(endpoint.concurrency, endpoint.first_pause_seconds)
        self._server = (endpoint.address, endpoint.model)
        self._left_out = frozenset() if endpoint.tiles else frozenset({TILES})
        self._probe = asyncio.Lock()
        self._died_at = 0.0

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    def stop(self, error: UserError) -> None:
        """Send nothing more: requests in flight end, any other `chat` raises the error."""
        self._limit.close(error)

    def stop_all(self, error: UserError) -> None:
        """Stop this client, and every other of the same build: the server would reject their requests too."""
        self.budget.close(error)
        self.stop(error)

    async def chat(self, messages: Sequence[Message], pattern: str = "") -> Reply:
        """Return the model's reply to a conversation, verbatim but for the key; empty if there is no text.

        Args:
            messages: the conversation.
            pattern: regular expression that guides the reply, where the server can.

        Raises:
            EndpointDownError: no answer from the address, or it stays overloaded.
            UserError: the key, the model or the path is wrong, or the budget is used up.
            RequestError: only this request fails, in every attempt.
        """
        endpoint, tries = self.endpoint, _Tries()
        demanded = frozenset({FORMAT} if endpoint.guided == "on" else ())
        request = DialectRequest(self._server, self._payload(messages, pattern), self._left_out, demanded)
        while True:
            async with self._limit.place(alone=tries.alone) as place:
                try:
                    self.budget.take()
                    reply = await self._transport.send(request.body)
                except BudgetError as error:
                    raise self._ended(error) from None
                except RejectedError as error:
                    self._adapt(request, error)
                    continue
                except ForbiddenError as error:
                    raise self._refused(str(error), _hint(error.status, endpoint)) from None
                except UnusableError as error:
                    raise RequestError(f"the model server at {endpoint.address}: {error}") from None
                except FailedError as error:
                    # Found out before its place is free: the next suspect must not meet a server that is about to end.
                    if isinstance(error, CutOffError) and await self._has_died(error, place, tries):
                        continue
                    failure = error
                else:
                    request.accepted()
                    _answered.add(self._server)
                    self._limit.answered(place)
                    return reply
            await self._recover(failure, place, tries)

    def _payload(self, messages: Sequence[Message], pattern: str) -> dict[str, Any]:
        endpoint = self.endpoint
        payload: dict[str, Any] = {
            "model": endpoint.model,
            "messages": list(messages),
            LENGTH: endpoint.max_tokens,
            TEMPERATURE: endpoint.temperature,
        }
        if pattern and endpoint.guided != "off":
            payload[FORMAT] = {"type": "regex_schema", "regex_schema": pattern}
        return payload

    def _adapt(self, request: DialectRequest, error: RejectedError) -> None:
        """Leave out the key that the server refuses.

        Raises:
            RequestError: it rejects the request for another reason.
            UserError: it refuses guided replies, which the settings demand.
        """
        key = request.refused_key(error.answer)
        if key is None:
            raise RequestError(f"the model server at {self.endpoint.address} rejects the request: {error}") from None
        if key == FORMAT and self.endpoint.guided == "on":
            raise self._refused(str(error), "set `guided` to auto") from None
        request.leave_out(key)

    async def _recover(self, failure: FailedError, place: Place, tries: _Tries) -> None:
        """Wait until the request may be sent again.

        Raises:
            EndpointDownError: the service is down.
            RequestError: the request has failed too often.
        """
        most = self.endpoint.attempts
        if isinstance(failure, UnreachableError | RefusedError):
            tries.refused += 1
            if tries.refused >= _MOST_REFUSALS * most:
                raise self._only_this(failure, tries.refused)
        if isinstance(failure, UnreachableError):
            return await self._until_back(failure)
        if isinstance(failure, RefusedError):
            pause_seconds = self._limit.refused(place, failure.pause_seconds)
            if self._limit.troubles < most:
                return self._tell(failure, pause_seconds)
            remedy = _LATER if await self._transport.is_up() else self.endpoint.remedy
            raise self._lost(f"{failure} after {most} attempts", remedy)
        tries.failed += 1
        if isinstance(failure, SilentError):
            self._limit.unanswered(place)
            if tries.failed < most <= self._limit.troubles:
                raise self._lost(f"{failure}, for {most} requests in a row", self.endpoint.remedy)
        if tries.failed < most:
            return await asyncio.sleep(self.endpoint.first_pause_seconds * 2.0 ** (tries.failed - 1) * _jitter())
        if await self._transport.is_up():
            raise self._only_this(failure, most)
        raise self._lost(f"{failure} after {most} attempts", self.endpoint.remedy)

    async def _has_died(self, failure: CutOffError, place: Place, tries: _Tries) -> bool:
        """Return true if the server died while answering; by then it is back, and the request is under suspicion.

        Raises:
            EndpointDownError: the service is down.
            RequestError: it died at this request before, which is then given up.
        """
        tries.cut_off += 1
        if self._died_at < place.started and not await self._transport.is_up():
            await self._until_back(failure)
        if self._died_at < place.started:
            return False
        if tries.is_suspect:
            raise RequestError(f"the model server at {self.endpoint.address} died twice while answering this request")
        tries.is_suspect, tries.failed = True, 0
        return True

    async def _until_back(self, failure: FailedError) -> None:
        """Wait until the server answers a probe; one waits for all, and a line says so.

        A server that has answered in this process is given as long as the attempts of a request: it may be restarting.

        Raises:
            EndpointDownError: it stays away; one that was never reached needs the user, so it is no EndpointLostError.
        """
        endpoint = self.endpoint
        async with self._probe:
            if self._limit.closed_by:  # by the one that waited: a probe for each of the others may take seconds
                raise self._limit.closed_by
            has_answered = self._server in _answered
            give_up = self._down if isinstance(failure, UnreachableError) and not has_answered else self._lost
            patience = endpoint.attempts * endpoint.timeout_seconds if has_answered else 0.0
            gives_up_at, pause, probes = time.monotonic() + patience, endpoint.first_pause_seconds, 1
            while not await self._transport.is_up():
                self._died_at = time.monotonic()
                enough = probes >= _PROBES_PER_ATTEMPT * endpoint.attempts and self._died_at >= gives_up_at
                if self._limit.closed_by or enough:
                    raise give_up(f"{failure} after {probes} attempts", endpoint.remedy)
                if probes == 1:
                    watcher.get().say(f"waiting for the model server at {endpoint.address}: {failure}")
                await asyncio.sleep(pause * _jitter())
                pause, probes = min(2 * pause, _LONGEST_PROBE_PAUSE_SECONDS), probes + 1

    def _tell(self, failure: RefusedError, pause_seconds: float) -> None:
        """Say until when nothing is sent, unless the pause is short."""
        if pause_seconds >= _TOLD_PAUSE_SECONDS:
            until = datetime.now().astimezone() + timedelta(seconds=pause_seconds)
            asked = ""
            if failure.pause_seconds > pause_seconds:
                asked = f", though the server asks for {failure.pause_seconds / 3600:,.1f} hours"
            server = f"the model server at {self.endpoint.address} asks to wait ({failure})"
            watcher.get().say(f"{server}: nothing is sent until {until:%H:%M:%S}{asked}")

    def _ended(self, error: UserError) -> UserError:
        """Send nothing more because of this error, and return it."""
        self.stop(error)
        return error

    def _refused(self, reason: str, remedy: str) -> UserError:
        error = self._unusable(reason, remedy)
        self.stop_all(error)
        return error

    def _down(self, reason: str, remedy: str) -> UserError:
        return self._ended(self._unusable(reason, remedy, EndpointDownError))

    def _lost(self, reason: str, remedy: str) -> UserError:
        return self._ended(self._unusable(reason, remedy, EndpointLostError))

    def _only_this(self, failure: FailedError, attempts: int) -> RequestError:
        address = self.endpoint.address
        return RequestError(f"the model server at {address} fails on this request after {attempts} attempts: {failure}")

    def _unusable(self, reason: str, remedy: str, kind: type[UserError] = UserError) -> UserError:
        text = f"the model server at {self.endpoint.address} cannot be used: {reason}"
        return kind(f"{text}; {remedy}" if remedy else text)


def _jitter() -> float:
    return random.uniform(0.5, 1.5)


def _hint(status: int, endpoint: Endpoint) -> str:
    if status in (401, 403):
        name = endpoint.api_key_env
        return f"put its key into the environment variable {name}" if name else "it wants a key: set `api_key_env`"
    if status == 404:
        return f"it does not serve the model {endpoint.model}, or the address lacks `/v1`; {endpoint.remedy}"
    return "give the address of the service itself: redirects and proxies are not followed"
