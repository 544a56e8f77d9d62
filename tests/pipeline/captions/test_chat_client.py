"""Chat client against a real server that behaves, misbehaves, dies, or does not exist."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import formatdate
from pathlib import Path

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.chat_client import ChatClient
from pipeline.captions.endpoint import (
    Endpoint,
    EndpointDownError,
    EndpointLostError,
    Reply,
    RequestError,
    user,
)
from pipeline.core.progress import Unwatched, watcher
from tests.support.media.painted_clips import make_screened_film, stage_for
from tests.support.servers.caption_server import Answer, CaptionServer, Request, _completion


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
    assert ("no answer within 0.5 s" in str(caught.value)) is (name == "slow")


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


def test_a_refusal_pauses_every_request() -> None:
    arrivals: list[float] = []

    def busy_once(_: Request) -> Answer:
        arrivals.append(time.monotonic())
        if len(arrivals) == 1:
            return Answer(status=429, headers={"Retry-After": "1"})
        return Answer("fine", delay_seconds=0.2)

    with CaptionServer(busy_once) as server:
        assert ask(server, count=6, concurrency=2) == ["fine"] * 6
    assert sum(arrival < arrivals[0] + 0.9 for arrival in arrivals) <= 2, "those in flight"


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_server_that_takes_few_requests_at_once_answers_all_of_them(at_once: int) -> None:
    free = threading.BoundedSemaphore(at_once)

    def answer(_: Request) -> Answer:
        if not free.acquire(blocking=False):
            return Answer(status=429)
        time.sleep(0.1)
        free.release()
        return Answer("fine")

    with CaptionServer(answer) as server:
        assert ask(server, count=40, concurrency=16) == ["fine"] * 40
        assert len(server.requests) < 150


@pytest.mark.parametrize(
    "value", ["soon", f"Wed, 21 Oct {'9' * 30} 07:28:00 GMT", f"Wed, 21 Oct 2015 07:28:00 +{'9' * 20}"]
)
def test_an_invalid_pause_is_ignored(value: str) -> None:
    with CaptionServer(in_turn(Answer(status=503, headers={"Retry-After": value}), Answer("fine"))) as server:
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


class Listener(Unwatched):
    """Watcher that keeps the lines of the work."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@contextmanager
def listening() -> Iterator[list[str]]:
    token = watcher.set(listener := Listener())
    try:
        yield listener.lines
    finally:
        watcher.reset(token)


def ended_server() -> CaptionServer:
    """Return a server whose port is free again."""
    server = CaptionServer(lambda _: Answer("fine"))
    server._server.server_close()
    return server


def test_a_server_that_is_just_starting_is_waited_for_and_named_at_once() -> None:
    ended = ended_server()
    port = ended._server.server_address[1]
    served: list[CaptionServer] = []

    def start() -> None:
        while not lines:
            time.sleep(0.02)
        served.append(CaptionServer(lambda _: Answer("fine"), port=port).__enter__())

    with listening() as lines:
        starter = threading.Thread(target=start, daemon=True)
        starter.start()
        assert ask(ended, count=4, first_pause_seconds=0.05) == ["fine"] * 4
    starter.join()
    served[0].__exit__()
    [line] = lines
    assert line.startswith(f"waiting for the model server at {ended.address}: no connection")


@pytest.mark.parametrize("asked", ["999999", "9999999", "Tue, 01 Jan 2199 00:00:00 GMT", "40"])
def test_a_server_that_asks_to_wait_is_named_with_the_time_before_the_pause(asked: str) -> None:
    async def run(server: CaptionServer, lines: list[str]) -> None:
        async with ChatClient(Endpoint(server.address, "test-model", attempts=4)) as client:
            asking = asyncio.gather(*(client.chat([user("q")]) for _ in range(4)), return_exceptions=True)
            while not lines:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # the other requests in flight are refused too
            asking.cancel()
            await asyncio.wait([asking])

    with CaptionServer(lambda _: Answer(status=429, headers={"Retry-After": asked})) as server, listening() as lines:
        before = datetime.now().astimezone().replace(microsecond=0)
        asyncio.run(asyncio.wait_for(run(server, lines), 10))
    [line] = lines
    assert line.startswith(f"the model server at {server.address} asks to wait (it answered 429")
    told = re.search(r"nothing is sent until (\d\d:\d\d:\d\d)", line)
    waits = timedelta(seconds=40 if asked == "40" else 600)
    assert told
    assert told[1] in {f"{before + waits + timedelta(seconds=late):%H:%M:%S}" for late in range(5)}
    assert ("though the server asks for" in line) == (asked != "40")


def test_a_short_pause_is_not_told() -> None:
    answers = iter([Answer(status=429, headers={"Retry-After": "1"})])
    with CaptionServer(lambda _: next(answers, Answer("fine"))) as server, listening() as lines:
        assert ask(server) == ["fine"]
    assert lines == []


def test_a_film_waits_once_for_a_server_that_is_down(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 6)
    stage = stage_for(ended_server().address, cast, model="never-served")
    with listening() as lines, pytest.raises(EndpointDownError, match="after 2 attempts; start it with") as caught:
        stage.run_batch(folder, stage.pending(folder, current=False).ids)
    assert len(lines) == 1
    assert not isinstance(caught.value, stage.resources.retry_on), "it would be waited for again"


def test_a_server_that_was_reached_is_worth_a_retry(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 6)
    with CaptionServer(lambda _: Answer(status=503), models_status=503) as server:
        stage = stage_for(server.address, cast)
        with pytest.raises(EndpointLostError) as caught:
            stage.run_batch(folder, stage.pending(folder, current=False).ids)
    assert isinstance(caught.value, stage.resources.retry_on)


def test_a_server_that_answered_another_client_is_waited_for_and_worth_a_retry() -> None:
    with CaptionServer(lambda _: Answer("fine")) as server:
        assert ask(server) == ["fine"]
    started = time.monotonic()
    with listening() as lines, pytest.raises(EndpointLostError, match="no connection"):
        ask(server, timeout_seconds=1, attempts=1, first_pause_seconds=0.05)
    assert time.monotonic() - started >= 1, "two probes alone would take a tenth of a second"
    assert len(lines) == 1


def test_an_address_that_drops_packets_is_a_server_never_reached() -> None:
    async def run(endpoint: Endpoint) -> list[object]:
        async with ChatClient(endpoint) as client:
            return await asyncio.gather(*(client.chat([user("q")]) for _ in range(8)), return_exceptions=True)

    with socket.socket() as listener, socket.socket() as queued, listening() as lines:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        queued.connect(listener.getsockname())  # the queue is full: the kernel drops further connections
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        endpoint = Endpoint(address, "never-served", timeout_seconds=1, attempts=1, first_pause_seconds=0.05)
        started = time.monotonic()
        errors = asyncio.run(run(endpoint))
    assert time.monotonic() - started < 4, "three connection attempts of half a second, whatever the requests"
    assert {type(error) for error in errors} == {EndpointDownError}
    assert "after 2 attempts" in str(errors[0])
    [line] = lines
    assert line.startswith(f"waiting for the model server at {address}: no connection")
