"""Chat transport: one attempt at a request of OpenAI's chat protocol over HTTP, and the verdict on it.

A connection carries one request, so that an answer that comes late or twice is never taken for another request's.
aiohttp takes half of the CPU time that httpx takes for a request with pictures.

The key is read from the environment, sent in one header, and removed from server output before it is shown. Redirects
and proxies are not followed: pictures of a film are sent to the configured address only.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from email.utils import parsedate_to_datetime

import aiohttp
import httpx
from pydantic import BaseModel, Field, ValidationError

from pipeline.captions.messages import Reply
from pipeline.core.errors import UserError
from pipeline.core.server_address import checked_address

MOST_REPLY_BYTES = 1 << 20
_CONNECT_SECONDS, _PROBE_SECONDS = 5.0, 10.0
"""Longest times of a connection attempt and of a probe."""
_REJECTIONS = {401, 403, 404, 405, 407}
_TRANSIENT = {408, 425}
_REFUSALS = {429, 503}
_NO_REPLY = {"error", "abort"}
"""Ends of a generation that failed: lmdeploy answers 200 then, with a message of its own as the text."""


class _Message(BaseModel):
    content: str | None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(BaseModel):
    model: str | None = None
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None

    @property
    def ended(self) -> str | None:
        """The reason for which the first choice ended; None: not said."""
        return self.choices[0].finish_reason

    def reply(self) -> Reply:
        """Return the first choice as a reply."""
        usage = self.usage or _Usage()
        return Reply(
            self.choices[0].message.content or "",
            cut_off=self.ended == "length",
            prompt_tokens=usage.prompt_tokens or 0,
            reply_tokens=usage.completion_tokens or 0,
        )


class FailedError(Exception):
    """Failure of one attempt at a request; the message is its reason."""


class RefusedError(FailedError):
    """The server refuses requests for now, and may ask for a pause."""

    def __init__(self, reason: str, pause_seconds: float) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds


class RejectedError(FailedError):
    """The server rejects the request as it is; the message is shortened."""

    def __init__(self, reason: str, answer: str) -> None:
        super().__init__(reason)
        self.answer = answer


class ForbiddenError(FailedError):
    """The server rejects the client: key, path or model."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class UnusableError(FailedError):
    """The server answers, but sending the request again would give no better answer."""


class SilentError(FailedError):
    """No answer in time."""


class UnreachableError(FailedError):
    """No connection; the request was not sent."""


class CutOffError(FailedError):
    """The connection was closed before the end of the answer."""


class ChatTransport:
    """HTTP connections to one server."""

    def __init__(self, address: str, model: str, api_key_env: str, timeout_seconds: float) -> None:
        """Prepare the connections; nothing is sent.

        Args:
            address: base address of the server.
            model: name of the model that has to answer.
            api_key_env: name of the environment variable with the key.
            timeout_seconds: longest time of one request.

        Raises:
            UserError: the address or the key cannot be used.
        """
        self._model = model
        self._timeout_seconds = timeout_seconds
        self._key = read_key(api_key_env)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._base = str(_base_address(address))
        # An address may drop packets. Shorter than a whole request, at whose end a server counts as reached but silent.
        connect_seconds = min(timeout_seconds / 2, _CONNECT_SECONDS)
        self._probe_timeout = aiohttp.ClientTimeout(min(timeout_seconds, _PROBE_SECONDS), sock_connect=connect_seconds)
        trusted = httpx.create_ssl_context(trust_env=False)  # as the rest of the project: the certificates of certifi
        self._http = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=trusted),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=connect_seconds),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def send(self, body: bytes) -> Reply:
        """Send one request; return the reply, without the key.

        Raises:
            FailedError: one of the classes above.
        """
        try:
            async with self._http.post(f"{self._base}chat/completions", data=body, allow_redirects=False) as response:
                content = await _bounded(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UnreachableError(f"no connection ({self._clean(str(error)) or type(error).__name__})") from None
        except TimeoutError:
            raise SilentError(f"no answer within {self._timeout_seconds:g} s") from None
        except aiohttp.ClientError as error:
            raise CutOffError(f"the connection was cut off ({type(error).__name__})") from None
        self._check_status(response, content)
        try:
            completion = _Completion.model_validate_json(content)
        except ValidationError:
            raise FailedError(f"the answer is not a chat completion: {self._clean(content)!r}") from None
        if completion.model and not is_same_model(completion.model, self._model):
            other = f"the model {self._clean(completion.model)} answers instead of {self._model}"
            raise UnusableError(f"{other}; set `model` to the one that is served")
        reply = completion.reply()
        if completion.ended in _NO_REPLY:
            raise FailedError(f"the generation ended with {completion.ended}: {self._clean(reply.text)!r}")
        if completion.ended == "content_filter":
            raise UnusableError("its content filter withholds the reply")
        return replace(reply, text=self._without_key(reply.text))

    def _check_status(self, response: aiohttp.ClientResponse, content: bytes) -> None:
        status = response.status
        if 200 <= status < 300:
            return
        answer = f"it answered {status}: {self._clean(content)!r}"
        if status in _REFUSALS:
            raise RefusedError(answer, _retry_after_seconds(response.headers.get("Retry-After", "")))
        if status in _TRANSIENT or status >= 500:
            raise FailedError(answer)
        if status in _REJECTIONS or 300 <= status < 400:
            raise ForbiddenError(answer, status)
        raise RejectedError(answer, self._without_key(content.decode(errors="replace")))

    async def is_up(self) -> bool:
        """Return true if the service still answers the protocol's simplest request, within a few seconds."""
        probe = self._http.get(f"{self._base}models", allow_redirects=False, timeout=self._probe_timeout)
        try:
            async with probe as response:
                return response.status < 500
        except (TimeoutError, aiohttp.ClientError):
            return False

    def _clean(self, answer: bytes | str) -> str:
        """Shorten a server's answer to one line of 200 characters without the key."""
        text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
        return re.sub(r"\s+", " ", self._without_key(text)).strip()[:200]

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MOST_REPLY_BYTES:
            raise UnusableError(f"the reply is longer than {MOST_REPLY_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


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


def read_key(name: str) -> str:
    """Return the API key in an environment variable; empty if the variable has no name or is not set.

    Raises:
        UserError: it holds characters that no API key has.
    """
    key = os.environ.get(name, "").strip() if name else ""
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"the environment variable {name} holds characters that no API key has")
    return key


def _base_address(address: str) -> httpx.URL:
    try:
        return checked_address(address)
    except ValueError as error:
        raise UserError(f"the address of the model server {error}") from None
