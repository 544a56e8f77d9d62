"""Page server with a test page: static files, routes, refusals, and a stop while a reply still streams."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import Request
from fastapi.responses import StreamingResponse

from flows.web import page_server
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

    @app.post("/api/notes")
    async def note(request: Request) -> int:
        return len(await request.body())

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


def test_other_hosts_get_no_answer_and_other_pages_cannot_write(page: tuple[str, PageServer]) -> None:
    for host in ("evil.example:8731", "127.0.0.1.evil.example", "127.0.0.1:1:2", ""):
        reply = HTTP.get(page[0], headers={"Host": host})
        assert reply.status_code == 421 or (reply.status_code == 400 and not host)
        assert "notes" not in reply.text
    address = page[0] + "api/notes"
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert HTTP.post(address, json={}, headers={"Origin": origin}).status_code == 403
    for site in ("cross-site", "same-site"):
        assert HTTP.post(address, json={}, headers={"Sec-Fetch-Site": site}).status_code == 403
    own = {"Origin": page[0].rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert HTTP.post(address, json={}, headers=own).status_code == 200
    assert HTTP.post(address, content=b" " * 70_000, headers=own).status_code == 413


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


def connected(address: str, sent: bytes) -> socket.socket:
    """Open a connection to the page and send the beginning of a request."""
    url = httpx.URL(address)
    connection = socket.create_connection((url.host, url.port or 80), timeout=5)
    connection.sendall(sent)
    return connection


WHOLE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POSTED = b"POST /api/notes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\n"


@pytest.mark.parametrize("half", [b"", POSTED + b"123", WHOLE + b"GET / HT"])
def test_a_request_that_does_not_arrive_in_time_ends_its_connection(
    page: tuple[str, PageServer], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], half: bytes
) -> None:
    monkeypatch.setattr(page_server, "REQUEST_SECONDS", 0.5)
    with connected(page[0], half) as connection:
        begun = time.monotonic()
        try:
            while connection.recv(1000):
                pass
        except ConnectionResetError:
            pass
        assert 0.4 < time.monotonic() - begun < 3
    assert capfd.readouterr().err == ""


def test_a_slow_request_in_time_and_a_reply_longer_than_that_are_not_cut(
    page: tuple[str, PageServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, server = page
    monkeypatch.setattr(page_server, "REQUEST_SECONDS", 0.5)
    with HTTP.stream("GET", address + "api/ticks") as reply:
        lines = reply.iter_lines()
        assert next(lines) == "tick"
        with connected(address, POSTED) as slow:
            time.sleep(0.3)
            slow.sendall(b"1234")
            assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        time.sleep(0.7)
        server.should_exit = True
        assert list(lines) == ["stopped"]


CHILD = """
import os, resource, sys, threading
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from flows.console.terminal import say
from flows.web.page_server import PageServer, address_of, listening, page_app
app = page_app(Path(sys.argv[1]))

@app.get("/api/take")
def take():
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        threading.Timer(1, lambda: [os.close(each) for each in taken]).start()

with listening(0, "the page") as listener:
    say(address_of(listener))
    PageServer(app, lambda: None).run(sockets=[listener])
"""


@contextmanager
def few_files(page: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Page in a process that may open 256 files; `/api/take` opens all of them for a second."""
    (page / "index.html").write_text("<title>notes</title>")
    command = [sys.executable, "-c", CHILD, str(page)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        yield process.stderr.readline().strip(), process
        process.kill()


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def test_more_connections_than_files_leave_the_page_reachable_and_a_lack_of_files_is_said_once(tmp_path: Path) -> None:
    with few_files(tmp_path) as (address, process):
        with ExitStack() as opened:
            for _ in range(300):
                opened.enter_context(connected(address, b"GET / HT"))
            for _ in range(3):
                assert httpx.get(address, timeout=2).status_code == 200
            before = cpu_seconds(process)
            time.sleep(0.5)
            assert cpu_seconds(process) - before < 0.2
        assert httpx.get(address + "api/take").status_code == 200
        before = cpu_seconds(process)
        assert httpx.get(address, timeout=5).status_code == 200
        assert cpu_seconds(process) - before < 0.5
        process.terminate()
        said = process.communicate(timeout=10)[1]
    assert said == "no connection can be opened (Too many open files): raise `ulimit -n` and start again\n"
