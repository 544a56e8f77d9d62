"""Dialect of a server: what it refuses by name is left out, once and for all its requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cv2
import pytest

from pipeline.captions.chat_client import ChatClient
from pipeline.captions.endpoint import Endpoint, Picture, RequestError, user
from pipeline.core.errors import UserError
from tests.support.media.painted_clips import paint_number
from tests.support.servers.caption_server import Answer, CaptionServer, Request

PATTERN = "yes|no"
GRID = Picture(cv2.imencode(".jpg", paint_number(3, 0))[1].tobytes(), tiles=4)


def ask(server: CaptionServer, count: int = 1, **changes: Any) -> list[str]:
    """Send questions with a pattern one after another, each over a client of its own."""
    endpoint = replace(Endpoint(server.address, "test-model", attempts=1, first_pause_seconds=0.01), **changes)

    async def run() -> str:
        async with ChatClient(endpoint) as client:
            return (await client.chat([user("well?")], PATTERN)).text

    return [asyncio.run(run()) for _ in range(count)]


def refusing(answers: dict[str, str], status: int = 400) -> Callable[[Request], Answer]:
    """Refuse requests with one of these keys, with the words of its server."""

    def answer(request: Request) -> Answer:
        for key, words in answers.items():
            if key in request.body:
                return Answer(status=status, raw=json.dumps({"error": {"message": words}}).encode())
        return Answer("yes")

    return answer


def keys_of(server: CaptionServer) -> list[set[str]]:
    return [set(request.body) - {"model", "messages", "temperature"} for request in server.requests]


def test_a_reply_is_guided_by_its_pattern() -> None:
    with CaptionServer(lambda _: Answer("yes")) as server:
        ask(server)
        assert server.requests[0].body["response_format"] == {"type": "regex_schema", "regex_schema": PATTERN}
        ask(server, guided="off")
        assert "response_format" not in server.requests[1].body


def test_a_request_too_long_for_the_model_does_not_lose_the_bound_on_replies() -> None:
    words = "'max_tokens' or 'max_completion_tokens' is too large: 256"
    with CaptionServer(refusing({"max_tokens": words, "max_completion_tokens": words})) as server:
        with pytest.raises(RequestError, match="too large"):
            ask(server)
        assert keys_of(server) == [{"max_tokens", "response_format"}]


def test_a_guided_reply_that_is_demanded_is_asked_for_in_spite_of_earlier_refusals() -> None:
    with CaptionServer(refusing({"response_format": "response_format is not supported"})) as server:
        assert ask(server) == ["yes"]
        with pytest.raises(UserError, match="set `guided` to auto"):
            ask(server, guided="on")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("Invalid value: 'regex_schema'. Supported values are: 'text', 'json_object', and 'json_schema'.", 400),
        ("body.response_format.type: Input should be 'text'", 422),
        ("x" * 5000 + " unknown field response_format", 400),
    ],
)
def test_a_server_that_refuses_guiding_is_asked_plainly_from_then_on(words: str, status: int) -> None:
    with CaptionServer(refusing({"response_format": words}, status)) as server:
        assert ask(server, 3) == ["yes"] * 3
        assert keys_of(server) == [{"max_tokens", "response_format"}, {"max_tokens"}, {"max_tokens"}, {"max_tokens"}]


def test_guiding_that_is_demanded_and_refused_stops() -> None:
    with (
        CaptionServer(refusing({"response_format": "unknown response_format"})) as server,
        pytest.raises(UserError, match="set `guided` to auto"),
    ):
        ask(server, guided="on")


def test_the_length_is_named_as_the_server_wants_it() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    with CaptionServer(refusing({"max_tokens": words})) as server:
        ask(server, 2, guided="off", max_tokens=77)
        assert keys_of(server) == [{"max_tokens"}, {"max_completion_tokens"}, {"max_completion_tokens"}]
        assert server.requests[-1].body["max_completion_tokens"] == 77


def test_a_temperature_that_the_model_refuses_is_left_to_it() -> None:
    words = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported."
    with CaptionServer(refusing({"temperature": words})) as server:
        assert ask(server, 2) == ["yes", "yes"]
        assert ["temperature" in request.body for request in server.requests] == [True, False, False]
        assert keys_of(server) == [{"max_tokens", "response_format"}] * 3


def test_a_server_that_takes_no_further_key_is_asked_without_any() -> None:
    strict = {key: f"extra field not permitted: {key}" for key in ("max_tokens", "max_completion_tokens")}
    with CaptionServer(refusing({"response_format": "extra: response_format", **strict})) as server:
        assert ask(server, 2) == ["yes", "yes"]
        assert keys_of(server)[-2:] == [set(), set()]


def test_tiles_are_left_out_for_a_server_that_refuses_them() -> None:
    def strict(request: Request) -> Answer:
        refused = "max_dynamic_patch" in json.dumps(request.body)
        return Answer(status=422, raw=b"extra inputs: image_url.max_dynamic_patch") if refused else Answer("yes")

    with CaptionServer(strict) as server:
        endpoint = Endpoint(server.address, "test-model", guided="off")

        async def run() -> str:
            async with ChatClient(endpoint) as client:
                return (await client.chat([user("well?", [GRID])])).text

        assert [asyncio.run(run()), asyncio.run(run())] == ["yes", "yes"]
        assert len(server.requests) == 3


def test_a_rejection_for_another_reason_is_not_learned_from() -> None:
    with CaptionServer(lambda _: Answer(status=400, raw=b"max_tokens and prompt exceed the context")) as server:
        with pytest.raises(RequestError, match="exceed the context"):
            ask(server, guided="off")
        server.answer = lambda _: Answer("yes")
        server.requests.clear()
        ask(server, guided="off")
        assert keys_of(server) == [{"max_tokens"}]
