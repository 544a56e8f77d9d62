"""Chat client against a real server that behaves, misbehaves, or does not exist."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate

import pytest

from pipeline.captions.chat_client import ChatClient
from pipeline.captions.chat_protocol import MOST_REPLY_BYTES
from pipeline.captions.endpoint import Endpoint, EndpointDownError, Picture, Reply, RequestError, assistant, user
from pipeline.core.errors import UserError
from tests.support.servers.caption_server import Answer, CaptionServer, Request, _completion

KEY = "sk-very-secret-key-0123456789"


def ask(server: CaptionServer, count: int = 1, **changes: object) -> list[str]:
    """Send `count` questions at once."""
    endpoint = Endpoint(server.address, "test-model", timeout_seconds=5, attempts=3, first_pause_seconds=0.01)

    async def run() -> list[str]:
        async with ChatClient(replace(endpoint, **changes)) as client:
            asked = [client.chat([user(f"question {number}")]) for number in range(count)]
            return [reply.text for reply in await asyncio.gather(*asked)]

    return asyncio.run(run())


def in_turn(*answers: Answer) -> Callable[[Request], Answer]:
    """Return these answers one after another, then repeat the last one."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


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


PASSING = {
    "busy": Answer(status=429),
    "broken": Answer(status=500, raw=b"Internal Server Error"),
    "behind a proxy": Answer(status=502, raw=b"<html>bad gateway</html>", headers={"Content-Type": "text/html"}),
    "cut off": Answer("half of this", cut_off=True),
    "garbage": Answer(raw=b'{"choices": [{"mess'),
    "not utf-8": Answer(raw=b"\xff\xfe\x00"),
    "a web page": Answer(raw=b"<html>hello</html>", headers={"Content-Type": "text/html"}),
    "another protocol": Answer(raw=b'{"text": "hello"}'),
    "no choices": Answer(raw=b'{"choices": []}'),
    "deeply nested": Answer(raw=b"[" * 100_000),
    "compressed unasked": Answer(raw=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}),
    "failed inside": Answer("internal error happened, status code ResponseType.INTERNAL", finish_reason="error"),
    "aborted inside": Answer("half of", finish_reason="abort"),
    "slow": Answer("late", delay_seconds=1.5),
}


@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING.keys())
def test_temporary_errors_are_retried(trouble: Answer) -> None:
    with CaptionServer(in_turn(trouble, trouble, Answer("fine"))) as server:
        assert ask(server, timeout_seconds=1 if trouble.delay_seconds else 10) == ["fine"]
        assert len(server.requests) == 3


@pytest.mark.parametrize("name", [name for name in PASSING if name != "busy"])
def test_lasting_errors_are_blamed_on_the_request_while_the_service_answers(name: str) -> None:
    with (
        CaptionServer(in_turn(PASSING[name])) as server,
        pytest.raises(RequestError, match=r"after 3 attempts") as caught,
    ):
        ask(server, timeout_seconds=0.5 if PASSING[name].delay_seconds else 10)
    assert server.address in str(caught.value)
    assert len(str(caught.value)) < 500


def test_lasting_errors_mean_the_service_is_down_when_nothing_answers() -> None:
    with CaptionServer(in_turn(PASSING["broken"]), models_status=503) as server:
        with pytest.raises(EndpointDownError, match="500: 'Internal Server Error' after 3 attempts"):
            ask(server)
        server.answer = in_turn(Answer(status=429))
        server.models_status = 200
        with pytest.raises(EndpointDownError, match=r"answered 429.*set a lower `concurrency`") as caught:
            ask(server, remedy="start it with `serve`")
        assert "start it" not in str(caught.value)


def test_an_address_without_a_server_is_named_with_the_remedy() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = CaptionServer(in_turn(Answer()))
        server._server.server_close()
        with pytest.raises(
            EndpointDownError, match=r"no connection .* after 6 attempts; start it with `serve`"
        ) as caught:
            ask(server, model="never-served", remedy="start it with `serve`")
    assert server.address in str(caught.value)


@pytest.mark.parametrize("header", ["1", "date"])
def test_the_pause_requested_by_the_server_is_kept(header: str) -> None:
    value = formatdate(time.time() + 3, usegmt=True) if header == "date" else header
    with CaptionServer(in_turn(Answer(status=429, headers={"Retry-After": value}), Answer("fine"))) as server:
        start = time.monotonic()
        assert ask(server) == ["fine"]
        assert time.monotonic() - start > 0.9


@pytest.mark.parametrize(
    "value", ["soon", f"Wed, 21 Oct {'9' * 30} 07:28:00 GMT", f"Wed, 21 Oct 2015 07:28:00 +{'9' * 20}"]
)
def test_an_invalid_pause_is_ignored(value: str) -> None:
    with CaptionServer(in_turn(Answer(status=503, headers={"Retry-After": value}), Answer("fine"))) as server:
        assert ask(server) == ["fine"]


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


def test_a_rejected_request_is_not_repeated() -> None:
    with CaptionServer(in_turn(Answer(status=400, raw=b"context too long"))) as server:
        with pytest.raises(RequestError, match="400: 'context too long'"):
            ask(server)
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


def test_only_the_request_that_kills_the_server_is_given_up_if_a_dying_server_still_accepts_connections() -> None:
    dies_until = 0.0
    busy: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dies_until
        busy.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            body = await reader.readexactly(int(length[1])) if length else b""
            await asyncio.sleep(0.05)
            if b"deadly" in body:
                dies_until = time.monotonic() + 0.3
                for each in busy:
                    each.transport.abort()
            if time.monotonic() < dies_until:
                writer.transport.abort()
            content = _completion("fine")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
            await writer.drain()
        busy.discard(writer)
        writer.close()

    async def run() -> list[object]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with server, ChatClient(Endpoint(address, "test-model", first_pause_seconds=0.01)) as client:
            asked = [client.chat([user("deadly" if number == 2 else "harmless")]) for number in range(12)]
            return list(await asyncio.gather(*asked, return_exceptions=True))

    replies = asyncio.run(run())
    assert "died twice" in str(replies.pop(2))
    assert [reply.text if isinstance(reply, Reply) else reply for reply in replies] == ["fine"] * 11


def test_requests_in_flight_reach_the_bound_and_never_exceed_it() -> None:
    three = threading.Barrier(3, timeout=20)

    def together(request: Request) -> Answer:
        three.wait()  # no answer before three requests have arrived
        return Answer(request.text, delay_seconds=0.05)

    with CaptionServer(together) as server:
        answers = ask(server, count=12, concurrency=3, timeout_seconds=30)
        assert answers == [f"question {number}" for number in range(12)]
        assert server.most_open == 3


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
