"""Artifacts on the pages of a Prefect server; a server that disappears or hangs does not affect the films."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from flows import artifacts
from pipeline.core.config import checked
from pipeline.plan.request import BuildRequest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect")]

FAST = checked({"looks": {"text": False}, "clips": {"width": 180, "height": 120}}, "test")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "SECONDS", 0.1)


class Proxy:
    """Proxy of a server until it is cut off."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}/api"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections and accept no more."""
        for end in (self._listener, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ends = self._listener.accept()[0], socket.create_connection(self._server)
                self._open += ends
                for source, sink in (ends, ends[::-1]):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)


@contextmanager
def server_at(address: str | None) -> Iterator[None]:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: address}):
        yield


def known(**wanted: Any) -> list[dict[str, Any]]:
    import httpx
    from prefect.settings import PREFECT_API_URL

    answer = httpx.post(f"{PREFECT_API_URL.value()}/artifacts/filter", json={"artifacts": wanted})
    found: list[dict[str, Any]] = answer.raise_for_status().json()
    return found


def progress_of(key: str) -> list[float]:
    return [artifact["data"] for artifact in known(key={"any_": [key]})]


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_long_work_has_a_bar_that_ends_full(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect import flow

    monkeypatch.setattr(artifacts, "PARTING_SECONDS", 20)  # the server shares two cores with the tests

    @flow
    def film() -> None:
        with artifacts.shown("Film_1", "cut again (changed: crf)") as watch:
            watch(1, 4)
            wait_for(lambda: progress_of("film-1-cut-again-changed-crf") == [25.0])
            watch(3, 4)
            wait_for(lambda: progress_of("film-1-cut-again-changed-crf") == [75.0])

    film()
    assert progress_of("film-1-cut-again-changed-crf") == [100.0]
    (artifact,) = known(key={"any_": ["film-1-cut-again-changed-crf"]})
    assert artifact["flow_run_id"]


def test_failed_work_leaves_its_bar_unchanged() -> None:
    def work() -> None:
        with artifacts.shown("film-2", "cut") as watch:
            watch(1, 2)
            wait_for(lambda: progress_of("film-2-cut"))
            raise ValueError("no frames")

    with pytest.raises(ValueError, match="no frames"):
        work()
    assert progress_of("film-2-cut") == [50.0]


def test_short_work_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "SECONDS", 30)
    started = time.monotonic()
    with artifacts.shown("film-3", "cut") as watch:
        watch(1, 2)
    assert time.monotonic() - started < 1
    assert progress_of("film-3-cut") == []


def test_a_server_that_disappears_is_ignored() -> None:
    from prefect.settings import PREFECT_API_URL

    server = urlsplit(PREFECT_API_URL.value())
    assert server.hostname
    assert server.port
    proxy = Proxy(server.hostname, server.port)
    with server_at(proxy.address), artifacts.shown("film-4", "cut") as watch:
        watch(1, 4)
        wait_for(lambda: progress_of("film-4-cut") == [25.0])
        proxy.cut()
        for done in range(8):
            watch(done, 8)
            time.sleep(0.1)
    assert progress_of("film-4-cut") == [25.0]


def test_a_server_that_hangs_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "PARTING_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        started = time.monotonic()
        with server_at(address), artifacts.shown("film-5", "cut") as watch:
            for done in range(4):
                watch(done, 4)
                time.sleep(0.1)
        assert time.monotonic() - started < 3


def test_without_a_configured_server_nothing_is_started() -> None:
    with server_at(None):
        before = threading.active_count()
        with artifacts.shown("film-6", "cut") as watch:
            watch(1, 2)
            assert threading.active_count() == before


def test_the_summary_of_a_build_lists_every_film_and_the_paths(tmp_path: Path) -> None:
    from flows.dataset import build_dataset
    from tests.support.media.films import corrupt, make_film

    good, noise = (make_film(tmp_path / f"{name}.mp4", frames=144, scenes=[0, 70]) for name in ("good", "no `ise"))
    corrupt(noise, 0.01, 0.9)
    (tmp_path / "empty.mp4").write_bytes(b"")
    out = tmp_path / "My Data"
    build_dataset(BuildRequest(films=(good, noise, tmp_path / "empty.mp4"), out=out, config=FAST), return_state=True)
    (table,) = known(key={"any_": ["films-my-data"]})
    rows = {row["film"]: row for row in json.loads(table["data"])}
    assert rows["good.mp4"]["state"] == "done"
    assert rows["good.mp4"]["clips"] == "2"
    assert rows["no `ise.mp4"]["state"].startswith("failed: ")
    assert any(row["state"].startswith("refused: ") for row in rows.values())
    (page,) = known(key={"any_": ["results-my-data"]})
    assert f"`{out}/report.html`" in page["data"]
    assert "samples: " in page["data"]
    assert "* `no 'ise.mp4: " in page["data"]
