"""Chat protocol: one request to a server with OpenAI's chat completions, and what its answer means.

A connection carries one request, so that a late or repeated answer is never mistaken for the answer to another request.
Nothing is read from `OPENAI_*` variables. Redirects and proxies are not followed: pictures of a film go to the
configured address only. The key is sent in one header, and removed from everything that the server says.

Servers differ in keys that a request can do without: lmdeploy knows `max_dynamic_patch` and the regular expressions of
guided decoding, and OpenAI's newer models want `max_completion_tokens` instead of `max_tokens`. If the server rejects a
request (400 or 422) and names one of these keys, it is sent once more without the key. If it is accepted then, the key
is left out for this server and model as long as the process runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from pipeline.captions.endpoint import TILES, Endpoint, Message, Reply, RequestError, read_key
from pipeline.core.endpoint_address import checked_address
from pipeline.core.errors import UserError

MOST_REPLY_BYTES = 1 << 20
_CONNECT_SECONDS, _PROBE_SECONDS = 5.0, 10.0
"""Longest times of a connection attempt and of a probe."""
_HEADERS = {"host", "connection", "accept", "accept-encoding", "authorization", "content-type", "content-length"}
"""Headers that are sent. Others come from the environment, or describe this machine."""
_FORMAT, _LENGTH, _NEWER_LENGTH = "response_format", "max_tokens", "max_completion_tokens"
_NAMED_AS = {
    **{key: key for key in (TILES, _LENGTH, _NEWER_LENGTH, "temperature")},
    _FORMAT: f"{_FORMAT}|regex_schema|guided.decoding",
}
"""Regular expression of the names by which a server may refuse a key."""
_TOO_LONG = re.compile(r"context|exceed|too (large|long|many)", re.I)
"""Words of a rejection for length: it names the bound on replies, but does not refuse the key."""
_refused_by: dict[tuple[str, str], frozenset[str]] = {}
"""Keys that a server refuses, by address and model."""


class FailedError(Exception):
    """Failure of one attempt that may succeed later; the message is its reason."""


class BusyError(FailedError):
    """The server refuses requests for now, and may ask for a pause."""

    def __init__(self, reason: str, pause_seconds: float) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds


class UnreachableError(FailedError):
    """No connection; the request was not sent."""


class CutOffError(FailedError):
    """The connection was closed before the end of the answer."""


class _TooLongError(Exception):
    """The answer is longer than any reply."""


class _Message(BaseModel):
    content: str | None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(BaseModel):
    """The part of an answer that is read. The types of `openai` take any JSON without a check."""

    model: str | None = None
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class _Transport(httpx2.AsyncHTTPTransport):
    """HTTP transport that sends known headers only, and reads an answer up to a limit, without unpacking it."""

    is_open = False
    """True: the server needs no key. `openai` would not send a request without one."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for name in set(request.headers) - _HEADERS:
            del request.headers[name]
        if self.is_open:
            request.headers.pop("Authorization", None)
        response = await super().handle_async_request(request)
        content = bytearray()
        try:
            async for part in response.aiter_raw():
                content += part
                if len(content) > MOST_REPLY_BYTES:
                    raise _TooLongError
        finally:
            await response.aclose()
        shown = {name: value for name, value in response.headers.items() if name != "content-encoding"}
        return httpx2.Response(response.status_code, headers=shown, content=bytes(content))


@dataclass
class ChatRequest:
    """One request, and the keys that it does without."""

    payload: dict[str, Any]
    """The request with all keys."""
    refused: frozenset[str]
    """Keys that are left out."""
    learned: set[str] = field(default_factory=set)
    """Keys that the server has refused in this request."""

    @property
    def body(self) -> dict[str, Any]:
        """The request without the refused keys."""
        body = {key: value for key, value in self.payload.items() if key not in self.refused}
        if _LENGTH in self.refused and _NEWER_LENGTH not in self.refused:
            body[_NEWER_LENGTH] = self.payload[_LENGTH]
        if TILES in self.refused:
            body["messages"] = [_without_tiles(message) for message in body["messages"]]
        return body

    def encoded(self) -> bytes:
        """Return the request without the refused keys as JSON."""
        return json.dumps(self.body).encode()

    def refused_key(self, answer: str) -> str | None:
        """Return the key of the request that a rejection names, or None."""
        body = self.body
        sent = set(body) - ({_LENGTH, _NEWER_LENGTH} if _TOO_LONG.search(answer) else set())
        if any(TILES in part.get("image_url", ()) for message in body["messages"] for part in _parts(message)):
            sent.add(TILES)
        names = {key: rf"(?<![a-z_])({name})(?![a-z_])" for key, name in _NAMED_AS.items() if key in sent}
        return next((key for key, name in names.items() if re.search(name, answer, re.I)), None)


class ChatProtocol:
    """Connections to one server, by `openai`. Each attempt at a request is sent once."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Prepare the connections; nothing is sent.

        Raises:
            UserError: the address or the key cannot be used.
        """
        self._endpoint = endpoint
        self._name = f"the model server at {endpoint.address}"
        self._key = read_key(endpoint.api_key_env)
        self._server = (endpoint.address, endpoint.model)
        self.openai = _connected(endpoint, self._key)

    async def close(self) -> None:
        """Close the connections."""
        await self.openai.close()

    def request(self, messages: Sequence[Message], pattern: str) -> ChatRequest:
        """Return a request, without the keys that the server is known to refuse."""
        endpoint = self._endpoint
        payload: dict[str, Any] = {
            "model": endpoint.model,
            "messages": list(messages),
            _LENGTH: endpoint.max_tokens,
            "temperature": endpoint.temperature,
        }
        if pattern and endpoint.guided != "off":
            payload[_FORMAT] = {"type": "regex_schema", "regex_schema": pattern}
        demanded = {_FORMAT} if endpoint.guided == "on" else set()
        refused = _refused_by.get(self._server, frozenset()) - demanded
        return ChatRequest(payload, refused if endpoint.tiles else refused | {TILES})

    @contextmanager
    def explained(self, request: ChatRequest) -> Iterator[None]:
        """Turn errors of `openai` into ours. If the server refuses a key, leave it out and raise nothing.

        Raises:
            FailedError: this attempt failed; the next one may succeed.
            RequestError: the server works, but rejects this request.
            UserError: the server rejects the client: its key, path or model, or guided replies that are demanded.
        """
        try:
            yield
        except openai.APIStatusError as error:
            self._leave_out_key(request, error.response)
        except _TooLongError:
            raise RequestError(f"{self._name}: the reply is longer than {MOST_REPLY_BYTES} bytes") from None
        except (TimeoutError, openai.APIConnectionError) as error:
            raise self._lost_connection(error) from None

    def _lost_connection(self, error: Exception) -> FailedError:
        # `asyncio.timeout` chains its TimeoutError to the CancelledError that it caught
        cause = error if isinstance(error, TimeoutError) else error.__cause__ or error
        if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
            return UnreachableError(f"no connection ({self._clean(str(cause)) or type(cause).__name__})")
        if isinstance(cause, TimeoutError | httpx2.TimeoutException):
            return FailedError(f"no answer within {self._endpoint.timeout_seconds:g} s")
        return CutOffError(f"the connection was cut off ({type(cause).__name__})")

    def _leave_out_key(self, request: ChatRequest, response: httpx2.Response) -> None:
        """Leave out the key that a rejection names, or raise what the answer means."""
        status, content = response.status_code, response.content
        said = f"it answered {status}: {self._clean(content)!r}"
        if status in (429, 503):
            raise BusyError(said, _retry_after_seconds(response.headers.get("Retry-After", "")))
        if status in (408, 425) or status >= 500:
            raise FailedError(said)
        if status in (401, 403, 404, 405, 407) or status < 400:
            raise UserError(f"{self._name} cannot be used: {said}; {_hint(status, self._endpoint)}")
        key = request.refused_key(self._without_key(content.decode(errors="replace")))
        if key is None:
            raise RequestError(f"{self._name} rejects the request: {said}")
        if key == _FORMAT and self._endpoint.guided == "on":
            raise UserError(f"{self._name} cannot be used: {said}; set `guided` to auto")
        request.refused |= {key}
        request.learned.add(key)

    def reply(self, request: ChatRequest, content: bytes) -> Reply:
        """Read the answer to a request, and remember the keys that the server has refused before.

        Raises:
            FailedError: it is not a chat completion, or the generation failed.
            RequestError: the same request would get no better answer.
        """
        try:
            completion = _Completion.model_validate_json(content)
        except ValidationError:
            raise FailedError(f"the answer is not a chat completion: {self._clean(content)!r}") from None
        if completion.model and not is_same_model(completion.model, self._endpoint.model):
            other = f"the model {self._clean(completion.model)} answers instead of {self._endpoint.model}"
            raise RequestError(f"{self._name}: {other}; set `model` to the served model")
        text, ended = completion.choices[0].message.content or "", completion.choices[0].finish_reason
        if ended in ("error", "abort"):  # lmdeploy answers 200 then, with a message of its own as the text
            raise FailedError(f"the generation ended with {ended}: {self._clean(text)!r}")
        if ended == "content_filter":
            raise RequestError(f"{self._name}: its content filter withholds the reply")
        if request.learned:
            _refused_by[self._server] = _refused_by.get(self._server, frozenset()) | request.learned
        usage = completion.usage or _Usage()
        tokens = usage.prompt_tokens or 0, usage.completion_tokens or 0
        return Reply(self._without_key(text), ended == "length", *tokens)

    async def is_up(self) -> bool:
        """Return true if the service still answers the protocol's simplest request, within a few seconds."""
        try:
            async with asyncio.timeout(min(self._endpoint.timeout_seconds, _PROBE_SECONDS)):
                await self.openai.get("/models", cast_to=httpx2.Response)
        except _TooLongError:
            return True
        except openai.APIStatusError as error:
            return error.status_code < 500
        except (TimeoutError, openai.APIConnectionError):
            return False
        return True

    def _clean(self, answer: bytes | str) -> str:
        """Shorten a server's answer to one line of 200 characters without the key."""
        text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
        return re.sub(r"\s+", " ", self._without_key(text)).strip()[:200]

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _connected(endpoint: Endpoint, key: str) -> openai.AsyncOpenAI:
    """Return a client that retries nothing, and reads nothing from the environment."""
    logging.getLogger("openai").setLevel(logging.WARNING)  # OPENAI_LOG would print each request with its pictures
    try:
        address = str(checked_address(endpoint.address))
    except ValueError as error:
        raise UserError(f"the address of the model server {error}") from None
    # An address may drop packets. Shorter than a whole request, at whose end a server counts as reached but silent.
    connect_seconds = min(endpoint.timeout_seconds / 2, _CONNECT_SECONDS)
    timeout = httpx2.Timeout(endpoint.timeout_seconds, connect=connect_seconds)
    trusted = httpx.create_ssl_context(trust_env=False)  # as the rest of the project: the certificates of certifi
    one_request_a_connection = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    transport = _Transport(verify=trusted, trust_env=False, limits=one_request_a_connection)
    transport.is_open = not key
    return openai.AsyncOpenAI(
        base_url=address,
        api_key=key or "none",
        admin_api_key="",
        organization="",
        project="",
        webhook_secret="",
        default_headers={
            "Authorization": f"Bearer {key or 'none'}",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        },
        max_retries=0,
        timeout=timeout,
        http_client=httpx2.AsyncClient(transport=transport, trust_env=False, follow_redirects=False, timeout=timeout),
    )


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [] if isinstance(content, str) else content


def _without_tiles(message: Mapping[str, Any]) -> dict[str, Any]:
    bare = [
        {**part, "image_url": {"url": part["image_url"]["url"]}} if "image_url" in part else part
        for part in _parts(message)
    ]
    return {**message, "content": bare} if bare else dict(message)


def _retry_after_seconds(header: str) -> float:
    """Parse a Retry-After header, seconds or a date; 0 if it is missing or invalid."""
    if re.fullmatch(r"\d+", header.strip()):
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def is_same_model(answered: str, asked: str) -> bool:
    """Return true for equal names, of which one may have a folder before it, and a date or an `@revision` behind it."""
    names, revisions = zip(*(_name_and_revision(name) for name in (answered, asked)), strict=True)
    one, other = sorted(names, key=len)
    is_same_revision = "" in revisions or len(set(revisions)) == 1
    return is_same_revision and re.fullmatch(re.escape(one) + r"([-:]\d[\d-]*)?", other) is not None


def _name_and_revision(model: str) -> tuple[str, str]:
    """Split a model's name, without its folder, from its revision; both in lower case."""
    path, _, revision = model.lower().partition("@")
    return path.rstrip("/").rsplit("/", 1)[-1], revision


def _hint(status: int, endpoint: Endpoint) -> str:
    if status in (401, 403):
        name = endpoint.api_key_env
        return f"put its key into the environment variable {name}" if name else "it wants a key: set `api_key_env`"
    if status == 404:
        return f"it does not serve the model {endpoint.model}, or the address lacks `/v1`; {endpoint.remedy}"
    return "give the address of the service itself: redirects and proxies are not followed"
