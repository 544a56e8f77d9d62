"""Waiting for a model server that does not answer: said at once, for a short while, and worth no retry after that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.chat_client import ChatClient, Endpoint, EndpointDownError, EndpointLostError
from pipeline.captions.messages import user
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


def test_a_film_waits_once_for_a_server_that_is_down(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 6)
    stage = stage_for(ended_server().address, cast)
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
