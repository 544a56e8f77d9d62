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

import pytest

from flows import artifacts
from pipeline.core.config import checked
from pipeline.core.store import Dataset
from pipeline.plan.request import BuildRequest
from tests.support.datasets.built_dataset import SMALL
from tests.support.media.films import corrupt, make_film

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect")]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "SECONDS", 0.1)


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


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def progress_of(key: str) -> list[float]:
    return [artifact["data"] for artifact in known(key={"any_": [key]})]


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
    (artifact,) = known(key={"any_": ["film-1-cut-again-changed-crf"]})
    assert artifact["data"] == 100
    assert artifact["flow_run_id"]
    with suppress(ValueError), artifacts.shown("film-2", "cut") as watch:
        watch(1, 2)
        wait_for(lambda: progress_of("film-2-cut"))
        raise ValueError
    assert progress_of("film-2-cut") == [50.0], "failed work leaves its bar unchanged"
    monkeypatch.setattr(artifacts, "SECONDS", 30)
    with artifacts.shown("film-3", "cut") as watch:
        watch(1, 2)
    assert progress_of("film-3-cut") == [], "work that ends sooner has none"


def test_a_server_that_hangs_or_is_gone_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "PARTING_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (silent.getsockname()[1], 9):
            started = time.monotonic()
            with server_at(f"http://127.0.0.1:{port}/api"), artifacts.shown("film-5", "cut") as watch:
                for done in range(4):
                    watch(done, 4)
                    time.sleep(0.1)
            assert time.monotonic() - started < 3
    with server_at(None):
        before = threading.active_count()
        with artifacts.shown("film-6", "cut") as watch:
            watch(1, 2)
            assert threading.active_count() == before, "nothing is started without a server"


def test_the_summary_of_a_build_lists_every_film_and_the_paths(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    good, noise = (make_film(tmp_path / f"{name}.mp4", frames=144, scenes=[0, 70]) for name in ("good", "no `ise"))
    corrupt(noise, 0.01, 0.9)
    (tmp_path / "empty.mp4").write_bytes(b"")
    out = tmp_path / "My Data"
    request = BuildRequest(films=(good, noise, tmp_path / "empty.mp4"), out=out, config=checked(SMALL, "test"))
    assert build_dataset(request, return_state=True).is_failed()
    (table,) = known(key={"any_": ["films-my-data"]})
    rows = {row["film"]: row for row in json.loads(table["data"])}
    whole, broken = Dataset(out).folders()
    assert whole.table_path("verdicts").exists()
    assert broken.failure is not None
    assert rows["good.mp4"]["state"] == "done"
    assert rows["good.mp4"]["clips"] == "2"
    assert rows["no `ise.mp4"]["state"].startswith("failed: ")
    assert any(row["state"].startswith("refused: ") for row in rows.values())
    (page,) = known(key={"any_": ["results-my-data"]})
    assert f"`{out}/report.html`" in page["data"]
    assert "samples: " in page["data"]
    assert "* `no 'ise.mp4: " in page["data"]
