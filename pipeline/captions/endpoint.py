"""Endpoint of a model server: its parameters, the messages and replies it exchanges, its errors and request budget.

A message shows its pictures first, each after its label, and the text last, as InternVL was trained (`Image-1:`,
`Frame-1:`). `max_dynamic_patch` in a picture is lmdeploy's own key.

The budget is the number of requests that one build may send, attempts and repairs included. A build also stops once the
server rejects several subjects in a row. A block `counted` counts both for all films of a build in this process, for
one film at a worker, or for one trial. Outside of such a block, each task counts by itself, as on a Ray cluster.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pipeline.core.errors import UserError

TILES = "max_dynamic_patch"
Message = dict[str, Any]
"""One message of a conversation, in the protocol's JSON form."""


class EndpointDownError(UserError):
    """The service does not answer, or is overloaded."""


class EndpointLostError(EndpointDownError):
    """The service was reached, but has ended or is overloaded: the same request may succeed later."""


class RequestError(UserError):
    """The service works, but cannot answer this one request."""


class BudgetError(UserError):
    """The budget is used up, or was closed."""


@dataclass(frozen=True)
class Endpoint:
    """Address of the service, and the parameters of its requests."""

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
    """Guide replies by a pattern: if the server can, always, or never."""
    most_requests: int | None = None
    """Budget of the build."""
    first_pause_seconds: float = 0.5
    remedy: str = ""
    """Remedy shown when the service is not running, such as the command that starts it."""


@dataclass(frozen=True)
class Picture:
    """A JPEG attached to a message."""

    jpeg: bytes
    tiles: int | None = None
    """Tiles of 448 x 448 that InternVL cuts it into at most, 256 tokens each; None: it is one tile or the default."""

    @cached_property
    def url(self) -> str:
        """The picture as a data URL."""
        return f"data:image/jpeg;base64,{base64.b64encode(self.jpeg).decode()}"


@dataclass(frozen=True)
class Reply:
    """A model's reply."""

    text: str
    cut_off: bool = False
    """True if it ended at `max_tokens` before the model had finished."""
    prompt_tokens: int = field(default=0, compare=False)
    """Tokens that the server read for it, pictures included; 0: not reported."""
    reply_tokens: int = field(default=0, compare=False)


def user(text: str, pictures: Sequence[Picture] = (), label: str = "Image") -> Message:
    """Return a user message: numbered pictures (`Image-1:`, or `Frame-1:` for frames of one clip), then the text."""
    if not pictures:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = []
    for number, picture in enumerate(pictures, start=1):
        image: dict[str, Any] = {"url": picture.url}
        if picture.tiles is not None:
            image[TILES] = picture.tiles
        parts.append({"type": "text", "text": f"{label}-{number}: "})
        parts.append({"type": "image_url", "image_url": image})
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def assistant(text: str) -> Message:
    """Return an assistant message: an earlier reply of the model."""
    return {"role": "assistant", "content": text}


def read_key(name: str) -> str:
    """Return the API key in an environment variable; empty if the name is empty or the variable is not set."""
    key = os.environ.get(name, "").strip() if name else ""
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"the environment variable {name} holds characters that no API key has")
    return key


class _Count:
    def __init__(self) -> None:
        self.requests = 0
        self.rejected = 0
        self.closed_by: UserError | None = None
        self.lock = threading.Lock()


_count: ContextVar[_Count | None] = ContextVar("requests_sent", default=None)


@contextmanager
def counted() -> Iterator[None]:
    """Count the requests of this block together, also from threads that run in a copy of its context."""
    token = _count.set(_Count())
    try:
        yield
    finally:
        _count.reset(token)


class Budget:
    """Budget of the block `counted` in which it is created."""

    def __init__(self, most: int | None) -> None:
        """Begin at what the block has sent so far; None: without bound."""
        self.most = most
        self._count = _count.get() or _Count()

    def take(self) -> None:
        """Count one more request. Raises BudgetError if the budget is used up or closed."""
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
