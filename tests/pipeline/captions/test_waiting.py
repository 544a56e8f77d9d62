"""Waiting for a model server that does not answer: said at once, for a short while, and worth no retry after that."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.chat_client import ChatClient
from pipeline.captions.endpoint import Endpoint, EndpointDownError, EndpointLostError, user
from pipeline.core.progress import Unwatched, watcher
from tests.support.media.painted_clips import make_screened_film, stage_for
from tests.support.servers.caption_server import Answer, CaptionServer


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
        served.append(CaptionServer(lambda _: Answer("fine"), port=port).__enter__())

    async def run() -> list[str]:
        endpoint = Endpoint(ended.address, "test-model", attempts=3, first_pause_seconds=0.05)
        async with ChatClient(endpoint) as client:
            replies = await asyncio.gather(*(client.chat([user("q")]) for _ in range(4)))
            return [reply.text for reply in replies]

    timer = threading.Timer(0.4, start)
    timer.start()
    try:
        with listening() as lines:
            assert asyncio.run(run()) == ["fine"] * 4
    finally:
        timer.join()
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

        async def run() -> str:
            async with ChatClient(Endpoint(server.address, "test-model")) as client:
                return (await client.chat([user("q")])).text

        assert asyncio.run(run()) == "fine"
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


def ask(endpoint: Endpoint) -> str:
    """Ask one question with a client of its own."""

    async def run() -> str:
        async with ChatClient(endpoint) as client:
            return (await client.chat([user("q")])).text

    return asyncio.run(run())


def test_a_server_that_answered_another_client_is_waited_for_and_worth_a_retry() -> None:
    with CaptionServer(lambda _: Answer("fine")) as server:
        endpoint = Endpoint(server.address, "test-model", timeout_seconds=1, attempts=1, first_pause_seconds=0.05)
        assert ask(endpoint) == "fine"
    started = time.monotonic()
    with listening() as lines, pytest.raises(EndpointLostError, match="no connection"):
        ask(endpoint)
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
