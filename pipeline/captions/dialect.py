"""Dialect of a model server: the keys of OpenAI's protocol that it takes, learned from what it refuses.

Servers differ in keys that a request can do without: lmdeploy knows `max_dynamic_patch` and the regular expressions of
guided decoding, OpenAI's newer models want `max_completion_tokens` instead of `max_tokens` and no `temperature` of 0,
and some servers reject every key that they do not know. A request starts with all keys. If the server rejects it (400
or 422) and names one of them, it is sent once more without that key, and if it is accepted then, the key is left out
for this server and model as long as the process runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.captions.messages import encoded

TILES, LENGTH, NEWER_LENGTH, FORMAT = "max_dynamic_patch", "max_tokens", "max_completion_tokens", "response_format"
TEMPERATURE = "temperature"
LENGTHS = {LENGTH, NEWER_LENGTH}
_NAMED_AS = {
    TILES: TILES,
    LENGTH: LENGTH,
    NEWER_LENGTH: NEWER_LENGTH,
    TEMPERATURE: TEMPERATURE,
    FORMAT: f"{FORMAT}|regex_schema|guided.decoding",
}
"""Regular expression of the names by which a server may refuse a key."""
_TOO_LONG = re.compile(r"context|exceed|too (large|long|many)", re.I)
"""Words of a rejection for length: it names the bound on replies, but does not refuse the key."""
Server = tuple[str, str]
"""Address and model."""
_refused_by: dict[Server, frozenset[str]] = {}


class DialectRequest:
    """One request in the dialect of a server as far as it is known."""

    def __init__(
        self,
        server: Server,
        payload: Mapping[str, Any],
        left_out: frozenset[str] = frozenset(),
        demanded: frozenset[str] = frozenset(),
    ) -> None:
        """Write the request.

        Args:
            server: address and model.
            payload: the request with all keys.
            left_out: keys that the settings leave out.
            demanded: keys that are written even if the server refused them before.
        """
        self._server = server
        self._payload = payload
        self._refused = left_out | (_refused_by.get(server, frozenset()) - demanded)
        self._learned: set[str] = set()
        self._write()

    def refused_key(self, answer: str) -> str | None:
        """Return the key of the request that a rejection names, or None."""
        refusable = self._keys - (LENGTHS if _TOO_LONG.search(answer) else set())
        names = {key: rf"(?<![a-z_])({name})(?![a-z_])" for key, name in _NAMED_AS.items() if key in refusable}
        return next((key for key, name in names.items() if re.search(name, answer, re.I)), None)

    def leave_out(self, key: str) -> None:
        """Write the request without a key."""
        self._refused |= {key}
        self._learned.add(key)
        self._write()

    def accepted(self) -> None:
        """Remember the keys that the server refused."""
        if self._learned:
            _refused_by[self._server] = _refused_by.get(self._server, frozenset()) | self._learned

    def _write(self) -> None:
        written = {key: value for key, value in self._payload.items() if key not in self._refused}
        if LENGTH in self._refused and NEWER_LENGTH not in self._refused:
            written[NEWER_LENGTH] = self._payload[LENGTH]
        self._keys = set(written)
        if TILES in self._refused:
            written["messages"] = [_without_tiles(message) for message in written["messages"]]
        elif any(TILES in url for message in written["messages"] for url in _urls(message)):
            self._keys.add(TILES)
        self.body = encoded(written)


def _urls(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    parts = message["content"]
    return (part["image_url"] for part in parts if not isinstance(parts, str) and "image_url" in part)


def _without_tiles(message: Mapping[str, Any]) -> dict[str, Any]:
    parts = message["content"]
    if isinstance(parts, str):
        return dict(message)
    bare = [{**part, "image_url": {"url": part["image_url"]["url"]}} if "image_url" in part else part for part in parts]
    return {**message, "content": bare}
