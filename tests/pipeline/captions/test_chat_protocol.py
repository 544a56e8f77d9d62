"""Chat protocol: what is sent, what an answer means, and the keys that a server refuses."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cv2
import pytest

from pipeline.captions.chat_client import ChatClient
from pipeline.captions.chat_protocol import MOST_REPLY_BYTES, is_same_model
from pipeline.captions.endpoint import Endpoint, Picture, RequestError, assistant, user
from pipeline.core.errors import UserError
from tests.pipeline.captions.test_chat_client import ask, in_turn
from tests.support.media.painted_clips import paint_number
from tests.support.servers.caption_server import Answer, CaptionServer, Request, _completion

KEY = "sk-very-secret-key-0123456789"


def test_requests_follow_the_protocol() -> None:
    with CaptionServer(in_turn(Answer("fine"))) as server:
        endpoint = Endpoint(server.address, "test-model", max_tokens=7, temperature=0.5)
        messages = [user("q", ()), assistant("a"), user("again")]

        async def run() -> str:
            async with ChatClient(endpoint) as client:
                return (await client.chat(messages)).text

        assert asyncio.run(run()) == "fine"
        (request,) = server.requests
    assert request.body == {"model": "test-model", "messages": messages, "max_tokens": 7, "temperature": 0.5}
    assert "authorization" not in request.headers


def test_the_text_of_a_message_follows_its_labelled_pictures() -> None:
    message = user("look", [Picture(b"\xff\xd8", tiles=4), Picture(b"\xff\xd8")], "Frame")
    assert message["content"] == [
        {"type": "text", "text": "Frame-1: "},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9g=", "max_dynamic_patch": 4}},
        {"type": "text", "text": "Frame-2: "},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9g="}},
        {"type": "text", "text": "look"},
    ]


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "variable TEST_KEY"),
        (403, "variable TEST_KEY"),
        (404, "does not serve the model test-model"),
        (307, "not followed"),
    ],
)
def test_a_refusal_is_final_and_names_the_remedy(status: int, hint: str) -> None:
    refusal = Answer(status=status, raw=b'{"message": "no"}', headers={"Location": "http://127.0.0.1:1/v1"})
    with CaptionServer(in_turn(refusal)) as server:
        with pytest.raises(UserError, match=hint):
            ask(server, api_key_env="TEST_KEY")
        assert len(server.requests) == 1


def test_a_reply_that_a_content_filter_withholds_is_not_asked_for_again() -> None:
    with CaptionServer(in_turn(Answer("The gi", finish_reason="content_filter"))) as server:
        with pytest.raises(RequestError, match="content filter withholds"):
            ask(server)
        assert len(server.requests) == 1


def test_an_endless_reply_is_not_read_to_its_end() -> None:
    with CaptionServer(in_turn(Answer("x" * (2 * MOST_REPLY_BYTES)))) as server:
        with pytest.raises(RequestError, match="longer than"):
            ask(server)
        assert len(server.requests) == 1


def test_unusual_but_valid_replies_are_accepted() -> None:
    nothing = json.dumps({"choices": [{"message": {"content": None}}]}).encode()
    plain = Answer(raw=_completion("fine"), headers={"Content-Type": "text/plain"})
    with CaptionServer(in_turn(Answer(raw=nothing), plain)) as server:
        assert ask(server) == [""]
        assert ask(server) == ["fine"]


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_the_key_is_sent_to_the_server_only(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY + "\n")
    caplog.set_level(logging.DEBUG)
    tell = f"your key {KEY} is wrong".encode()
    said = ""
    with CaptionServer(in_turn(Answer("fine", status=status, raw=tell if status != 200 else None))) as server:
        try:
            ask(server, api_key_env="TEST_KEY")
        except (RequestError, UserError) as error:
            said = f"{error} {error!r} {error.__cause__!r}"
            assert "***" in said
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    output = capfd.readouterr()
    assert KEY not in said + caplog.text + output.out + output.err


def test_an_invalid_key_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-ab\ncd")
    with pytest.raises(UserError, match="TEST_KEY") as caught:
        ask(CaptionServer(in_turn(Answer())), api_key_env="TEST_KEY")
    assert "sk-ab" not in str(caught.value)


@pytest.mark.parametrize("address", ["127.0.0.1:23333/v1", "ftp://host/v1", "", "http://", "http://me:secret@host/v1"])
def test_unusable_addresses_are_refused(address: str) -> None:
    with pytest.raises(UserError) as caught:
        ChatClient(Endpoint(address, "test-model"))
    assert "secret" not in str(caught.value)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with CaptionServer(in_turn(Answer("fine"))) as server:
        assert ask(server) == ["fine"]


PATTERN = "yes|no"
GRID = Picture(cv2.imencode(".jpg", paint_number(3, 0))[1].tobytes(), tiles=4)


def ask_guided(server: CaptionServer, count: int = 1, **changes: Any) -> list[str]:
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
        ask_guided(server)
        assert server.requests[0].body["response_format"] == {"type": "regex_schema", "regex_schema": PATTERN}
        ask_guided(server, guided="off")
        assert "response_format" not in server.requests[1].body


def test_a_request_too_long_for_the_model_does_not_lose_the_bound_on_replies() -> None:
    words = "'max_tokens' or 'max_completion_tokens' is too large: 256"
    with CaptionServer(refusing({"max_tokens": words, "max_completion_tokens": words})) as server:
        with pytest.raises(RequestError, match="too large"):
            ask_guided(server)
        assert keys_of(server) == [{"max_tokens", "response_format"}]


def test_a_guided_reply_that_is_demanded_is_asked_for_in_spite_of_earlier_refusals() -> None:
    with CaptionServer(refusing({"response_format": "response_format is not supported"})) as server:
        assert ask_guided(server) == ["yes"]
        with pytest.raises(UserError, match="set `guided` to auto"):
            ask_guided(server, guided="on")


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
        assert ask_guided(server, 3) == ["yes"] * 3
        assert keys_of(server) == [{"max_tokens", "response_format"}, {"max_tokens"}, {"max_tokens"}, {"max_tokens"}]


def test_the_length_is_named_as_the_server_wants_it() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    with CaptionServer(refusing({"max_tokens": words})) as server:
        ask_guided(server, 2, guided="off", max_tokens=77)
        assert keys_of(server) == [{"max_tokens"}, {"max_completion_tokens"}, {"max_completion_tokens"}]
        assert server.requests[-1].body["max_completion_tokens"] == 77


def test_a_temperature_that_the_model_refuses_is_left_to_it() -> None:
    words = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported."
    with CaptionServer(refusing({"temperature": words})) as server:
        assert ask_guided(server, 2) == ["yes", "yes"]
        assert ["temperature" in request.body for request in server.requests] == [True, False, False]
        assert keys_of(server) == [{"max_tokens", "response_format"}] * 3


def test_a_server_that_takes_no_further_key_is_asked_without_any() -> None:
    strict = {key: f"extra field not permitted: {key}" for key in ("max_tokens", "max_completion_tokens")}
    with CaptionServer(refusing({"response_format": "extra: response_format", **strict})) as server:
        assert ask_guided(server, 2) == ["yes", "yes"]
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
            ask_guided(server, guided="off")
        server.answer = lambda _: Answer("yes")
        server.requests.clear()
        ask_guided(server, guided="off")
        assert keys_of(server) == [{"max_tokens"}]


@pytest.mark.parametrize(
    ("answered", "asked", "same"),
    [
        ("OpenGVLab/InternVL2-26B", "internvl2-26b", True),
        ("/models/InternVL2-26B/", "OpenGVLab/InternVL2-26B", True),
        ("gpt-4o-2024-08-06", "gpt-4o", True),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("/models/InternVL2-26B@main", "OpenGVLab/InternVL2-26B", True),
        ("org/InternVL2-26B@refs/pr/1", "internvl2-26b", True),
        ("InternVL2-26B@main", "InternVL2-26B@46f3797", False),
        ("InternVL2-8B@main", "InternVL2-26B", False),
        ("gpt-4o-mini", "gpt-4o", False),
        ("InternVL2-26B-AWQ", "InternVL2-26B", False),
        ("InternVL2-8B", "InternVL2-26B", False),
        ("i", "InternVL2-26B", False),
    ],
)
def test_a_model_is_known_by_its_name_with_a_folder_a_date_or_a_revision(answered: str, asked: str, same: bool) -> None:
    assert is_same_model(answered, asked) == same


def test_a_log_asked_for_in_the_environment_does_not_print_the_pictures() -> None:
    code = """
import logging
from pipeline.captions.chat_protocol import ChatProtocol
from pipeline.captions.endpoint import Endpoint
ChatProtocol(Endpoint("http://127.0.0.1:1/v1", "model"))
print(logging.getLogger("openai").level)
"""
    environment = {**os.environ, "OPENAI_LOG": "debug"}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert output.stdout == f"{logging.WARNING}\n"


def test_variables_of_openai_change_nothing_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", "from-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Extra: from-the-environment\nAuthorization: Bearer other")
    with CaptionServer(in_turn(Answer("fine"))) as server:
        assert ask(server) == ["fine"]
        sent = server.requests[0].headers
    assert set(sent) == {"host", "connection", "accept", "accept-encoding", "content-type", "content-length"}
    assert "from-the-environment" not in str(sent)
