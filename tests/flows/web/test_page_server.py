"""Page server with a test page: static files, routes, refusals, and a stop while a reply still streams."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.responses import StreamingResponse

from flows.web.page_server import PageServer, address_of, listening, page_app, until_stopped

HTTP = httpx.Client(verify=False)  # no certificates to load: plain HTTP on loopback


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[str, PageServer]]:
    """Page with one route that streams until the server stops."""
    (tmp_path / "index.html").write_text("<title>notes</title>")
    (tmp_path / "notes.py").write_text("secret = 1")
    app, stopped = page_app(tmp_path), threading.Event()

    @app.get("/api/ticks")
    def ticks() -> StreamingResponse:
        async def stream() -> AsyncIterator[str]:
            yield "tick\n"
            while not stopped.is_set():
                await asyncio.sleep(0.01)
            yield "stopped\n"

        return StreamingResponse(stream(), media_type="text/plain")

    with listening(0, "the page") as listener:
        server = PageServer(app, stopped.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield address_of(listener), server
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def test_only_files_of_the_page_are_served(page: tuple[str, PageServer]) -> None:
    address, _ = page
    index = HTTP.get(address)
    assert (index.status_code, index.text) == (200, "<title>notes</title>")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    for name in ("notes.py", "api", "..%2fnotes.py"):
        reply = HTTP.get(address + name)
        assert (reply.status_code, reply.json()) == (404, {"message": "There is no such page."}), name
        assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert HTTP.get(address, headers={"Host": "evil.example"}).status_code == 421


def test_a_reply_that_streams_ends_when_the_server_stops(page: tuple[str, PageServer]) -> None:
    address, server = page
    with HTTP.stream("GET", address + "api/ticks") as reply:
        lines = reply.iter_lines()
        assert next(lines) == "tick"
        server.should_exit = True
        assert list(lines) == ["stopped"]


def test_sigterm_ends_the_block_and_its_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with until_stopped():
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the block went on")
    assert signal.getsignal(signal.SIGTERM) == before
