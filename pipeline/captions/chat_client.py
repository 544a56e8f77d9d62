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

A connection carries one request, so that an answer that comes late or twice is never taken for another request's.

The key is read from the environment, sent in one header, and removed from server output before it is shown. Redirects
and proxies are not followed: pictures of a film are sent to the configured address only.

A message shows its pictures first, each after its label, and the text last, as InternVL was trained (`Image-1:`,
`Frame-1:`); lmdeploy keeps the order of the parts since 0.11. `max_dynamic_patch` in a picture is lmdeploy's own key.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import chain
from types import TracebackType
from typing import Any

import httpx
from pydantic import BaseModel, Field, ValidationError

from pipeline.captions.request_limit import Place, RequestLimit
from pipeline.core.errors import UserError
from pipeline.core.server_address import checked_address

Message = dict[str, Any]
"""One message of a conversation, in the protocol's JSON form, with a `Picture` where its URL stands."""

MOST_REPLY_BYTES = 1 << 20
_REJECTIONS = {401, 403, 404, 405, 407}
_TRANSIENT = {408, 425}
_REFUSALS = {429, 503}
_MOST_REFUSALS = 5
_LONGEST_PROBE_PAUSE_SECONDS = 5.0
_PLACE = secrets.token_hex(16)
"""Text in place of a picture's URL, in no text of others."""


class EndpointDownError(UserError):
    """The service does not answer, or is overloaded: the same request may succeed later."""


class RequestError(UserError):
    """The service works, but cannot answer this one request."""


@dataclass(frozen=True)
class Picture:
    """A JPEG attached to a message."""

    jpeg: bytes
    tiles: int | None = None
    """Tiles of 448 x 448 that InternVL cuts it into at most, 256 tokens each; None: it is one tile or the default."""

    @cached_property
    def url(self) -> bytes:
        """The picture as a data URL, a JSON string."""
        return b'"data:image/jpeg;base64,%b"' % base64.b64encode(self.jpeg)


def user(text: str, pictures: Sequence[Picture] = (), label: str = "Image") -> Message:
    """Return a user message: pictures, each labelled with its number, and the text that refers to them.

    Args:
        text: the question.
        pictures: the pictures, in order.
        label: kind of the pictures: `Image`, or `Frame` for those of one clip.
    """
    if not pictures:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = []
    for number, picture in enumerate(pictures, start=1):
        image: dict[str, Any] = {"url": picture}
        if picture.tiles is not None:
            image["max_dynamic_patch"] = picture.tiles
        parts.append({"type": "text", "text": f"{label}-{number}: "})
        parts.append({"type": "image_url", "image_url": image})
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def assistant(text: str) -> Message:
    """Return an assistant message: an earlier reply of the model."""
    return {"role": "assistant", "content": text}


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
    first_pause_seconds: float = 0.5
    remedy: str = ""
    """Remedy shown when the service is not running, such as the command that starts it."""


@dataclass(frozen=True)
class Reply:
    """A model's reply."""

    text: str
    cut_off: bool = False
    """True if it ended at `max_tokens` rather than where the model ended it."""
    prompt_tokens: int = field(default=0, compare=False)
    """Tokens that the server read for it, pictures included; 0: not reported."""
    reply_tokens: int = field(default=0, compare=False)


class _Message(BaseModel):
    content: str | None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None

    def reply(self) -> Reply:
        """Return the first choice as a reply."""
        choice, usage = self.choices[0], self.usage or _Usage()
        return Reply(
            choice.message.content or "",
            cut_off=choice.finish_reason == "length",
            prompt_tokens=usage.prompt_tokens or 0,
            reply_tokens=usage.completion_tokens or 0,
        )


class _FailedError(Exception):
    """Failure of one attempt at a request; the message is its reason."""


class _RefusedError(_FailedError):
    """The server refuses requests for now, and may ask for a pause."""

    def __init__(self, reason: str, pause_seconds: float) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds


class _SilentError(_FailedError):
    """No answer in time."""


class _UnreachableError(_FailedError):
    """No connection; the request was not sent."""


class _CutOffError(_FailedError):
    """The connection was closed before the end of the answer."""


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
        self._key = _read_key(endpoint.api_key_env)
        self._limit = RequestLimit(endpoint.concurrency, endpoint.first_pause_seconds)
        self._probe = asyncio.Lock()
        self._answered_at = self._died_at = 0.0
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._http = httpx.AsyncClient(
            base_url=_base_address(endpoint.address),
            headers=headers,
            timeout=endpoint.timeout_seconds,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    def stop(self, error: UserError) -> None:
        """Send nothing more: requests in flight end, any other `chat` raises the error."""
        self._limit.close(error)

    async def chat(self, messages: Sequence[Message]) -> Reply:
        """Return the model's reply to a conversation, verbatim but for the key; empty if there is no text.

        Raises:
            EndpointDownError: no answer from the address, or it stays overloaded.
            UserError: the key, the model or the path is wrong.
            RequestError: only this request fails, in every attempt.
        """
        body, tries = self._body(messages), _Tries()
        while True:
            async with self._limit.place(alone=tries.alone) as place:
                try:
                    reply = await self._attempt(body)
                except _FailedError as error:
                    failure = error
                else:
                    self._answered_at = time.monotonic()
                    self._limit.answered(place)
                    return reply
            await self._recover(failure, place, tries)

    def _body(self, messages: Sequence[Message]) -> bytes:
        endpoint = self.endpoint
        payload = {
            "model": endpoint.model,
            "messages": list(messages) if endpoint.tiles else [_without_tiles(message) for message in messages],
            "max_tokens": endpoint.max_tokens,
            "temperature": endpoint.temperature,
        }
        return encoded(payload)

    async def _recover(self, failure: _FailedError, place: Place, tries: _Tries) -> None:
        """Wait until the request may be sent again.

        Raises:
            EndpointDownError: the service is down.
            RequestError: the request has failed too often.
        """
        most = self.endpoint.attempts
        if isinstance(failure, _UnreachableError):
            return await self._until_back(failure)
        if isinstance(failure, _RefusedError):
            self._limit.refused(place, failure.pause_seconds)
            tries.refused += 1
            if self._limit.troubles >= most:
                raise self._down(f"{failure} after {most} attempts")
            if tries.refused < _MOST_REFUSALS * most:
                return None
            raise self._only_this(failure, tries.refused)
        tries.failed += 1
        if isinstance(failure, _SilentError):
            self._limit.unanswered(place)
            if tries.failed < most <= self._limit.troubles:
                raise self._down(f"{failure}, for {most} requests in a row")
        if isinstance(failure, _CutOffError):
            await self._after_cut_off(failure, place, tries)
        if tries.failed < most:
            return await asyncio.sleep(self.endpoint.first_pause_seconds * 2.0 ** (tries.failed - 1) * _jitter())
        if await self._is_up():
            raise self._only_this(failure, most)
        raise self._down(f"{failure} after {most} attempts")

    async def _after_cut_off(self, failure: _FailedError, place: Place, tries: _Tries) -> None:
        """Find out if the server died, wait until it is back, and give up a request at which it died twice."""
        tries.cut_off += 1
        if self._died_at < place.started and not await self._is_up():
            await self._until_back(failure)
        if self._died_at < place.started:
            return
        if tries.is_suspect:
            raise RequestError(f"the model server at {self.endpoint.address} died twice while answering this request")
        tries.is_suspect, tries.failed = True, 0

    async def _until_back(self, failure: _FailedError) -> None:
        """Wait until the server answers a probe; one waits for all.

        A server that has answered before is given as long as the attempts of a request, since it may be starting again.
        """
        endpoint = self.endpoint
        async with self._probe:
            patience = endpoint.attempts * endpoint.timeout_seconds if self._answered_at else 0.0
            gives_up_at, pause, probes = time.monotonic() + patience, endpoint.first_pause_seconds, 1
            while not await self._is_up():
                self._died_at = time.monotonic()
                if self._limit.is_closed or (probes >= endpoint.attempts and self._died_at >= gives_up_at):
                    raise self._down(f"{failure} after {probes} attempts")
                await asyncio.sleep(pause * _jitter())
                pause, probes = min(2 * pause, _LONGEST_PROBE_PAUSE_SECONDS), probes + 1

    async def _attempt(self, body: bytes) -> Reply:
        try:
            async with (
                asyncio.timeout(self.endpoint.timeout_seconds),
                self._http.stream("POST", "chat/completions", content=body) as response,
            ):
                content = await _bounded(response)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _UnreachableError(f"no connection ({self._clean(str(error)) or type(error).__name__})") from None
        except (TimeoutError, httpx.TimeoutException):
            raise _SilentError(f"no answer within {self.endpoint.timeout_seconds:g} s") from None
        except httpx.TransportError as error:
            raise _CutOffError(f"the connection was cut off ({type(error).__name__})") from None
        self._check_status(response, content)
        try:
            reply = _Completion.model_validate_json(content).reply()
        except ValidationError:
            raise _FailedError(f"the answer is not a chat completion: {self._clean(content)!r}") from None
        return replace(reply, text=self._without_key(reply.text))

    def _check_status(self, response: httpx.Response, content: bytes) -> None:
        status = response.status_code
        if response.is_success:
            return
        answer = f"it answered {status}: {self._clean(content)!r}"
        if status in _REFUSALS:
            raise _RefusedError(answer, _retry_after_seconds(response.headers.get("Retry-After", "")))
        if status in _TRANSIENT or status >= 500:
            raise _FailedError(answer)
        if status in _REJECTIONS or response.is_redirect:
            raise self._ended(UserError(self._about_service(answer, _hint(status, self.endpoint))))
        raise RequestError(f"the model server at {self.endpoint.address} rejects the request: {answer}")

    def _ended(self, error: UserError) -> UserError:
        """Send nothing more because of this error, and return it."""
        self.stop(error)
        return error

    def _down(self, reason: str) -> UserError:
        return self._ended(EndpointDownError(self._about_service(reason, self.endpoint.remedy)))

    def _only_this(self, failure: _FailedError, attempts: int) -> RequestError:
        address = self.endpoint.address
        return RequestError(f"the model server at {address} fails on this request after {attempts} attempts: {failure}")

    async def _is_up(self) -> bool:
        """Return true if the service still answers the protocol's simplest request."""
        try:
            async with asyncio.timeout(self.endpoint.timeout_seconds), self._http.stream("GET", "models") as response:
                return response.status_code < 500
        except (TimeoutError, httpx.TransportError):
            return False

    def _about_service(self, reason: str, remedy: str) -> str:
        text = f"the model server at {self.endpoint.address} cannot be used: {reason}"
        return f"{text}; {remedy}" if remedy else text

    def _clean(self, answer: bytes | str) -> str:
        """Shorten a server's answer to one line of 200 characters without the key."""
        text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
        return re.sub(r"\s+", " ", self._without_key(text)).strip()[:200]

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def encoded(payload: Mapping[str, Any]) -> bytes:
    """Return a payload as JSON. The URLs of pictures go in as they are: looking for escapes in them takes CPU time."""
    pictures: list[Picture] = []

    def place_of(picture: Picture) -> str:
        pictures.append(picture)
        return _PLACE

    start, *rest = json.dumps(payload, default=place_of).encode().split(b'"%b"' % _PLACE.encode())
    return b"".join((start, *chain.from_iterable(zip((each.url for each in pictures), rest, strict=True))))


def _without_tiles(message: Message) -> Message:
    """Return a message whose pictures have no `max_dynamic_patch`."""
    parts = message["content"]
    if isinstance(parts, str):
        return message
    bare = [{**part, "image_url": {"url": part["image_url"]["url"]}} if "image_url" in part else part for part in parts]
    return {**message, "content": bare}


async def _bounded(response: httpx.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > MOST_REPLY_BYTES:
            raise RequestError(f"the reply is longer than {MOST_REPLY_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _jitter() -> float:
    return random.uniform(0.5, 1.5)


def _retry_after_seconds(header: str) -> float:
    """Parse a Retry-After header, seconds or a date; 0 if it is missing or invalid."""
    if re.fullmatch(r"\d{1,6}", header.strip()):
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _hint(status: int, endpoint: Endpoint) -> str:
    if status in (401, 403):
        name = endpoint.api_key_env
        return f"put its key into the environment variable {name}" if name else "it wants a key: set `api_key_env`"
    if status == 404:
        return f"it does not serve the model {endpoint.model}, or the address lacks `/v1`; {endpoint.remedy}"
    return "give the address of the service itself: redirects and proxies are not followed"


def _read_key(name: str) -> str:
    key = os.environ.get(name, "").strip() if name else ""
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"the environment variable {name} holds characters that no API key has")
    return key


def _base_address(address: str) -> httpx.URL:
    try:
        return checked_address(address)
    except ValueError as error:
        raise UserError(f"the address of the model server {error}") from None
