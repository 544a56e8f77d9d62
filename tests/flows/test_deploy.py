"""Deployments on a real server with real workers: the same bytes as the plain command, after any kill.

All captions come from one caption server, so that a build can be paused at a known stage and the limit of the tag
`captions` can be observed. The plain build, the reference for all others, runs before limits are set.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from typer.testing import CliRunner

from flows.cli import app
from flows.dataset import acquire_with_retry
from pipeline.core.atomic import HeldError, held
from pipeline.core.store import Dataset
from pipeline.plan.request import BuildRequest
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import contents, differences, numbered_films, write_config
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer
from tests.support.servers.prefect_server import PrefectServer, until

BUILD, ONBOARD = "build-dataset/animegamer", "onboard-film/animegamer"
CAST = ("Ponyo", "Sosuke")
SECRET = "open-sesame-of-ponyo"
Asked: TypeAlias = dict[str, Any]
Contents: TypeAlias = dict[str, bytes]
slow = [pytest.mark.slow, pytest.mark.timeout(900)]


def answer_slowly(request: Request, seconds: float = 0.3) -> Answer:
    return Answer(good_answer(request).text, delay_seconds=seconds)


def answer_when(what: str, true: Callable[[], object], request: Request) -> Answer:
    """Answer once this is true, however slowly the films come."""
    until(what, true)
    return good_answer(request)


@pytest.fixture(scope="module")
def captions() -> Iterator[CaptionServer]:
    with CaptionServer(answer_slowly) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    with PrefectServer(tmp_path_factory.mktemp("prefect")) as server:
        yield server


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory, captions: CaptionServer) -> Asked:
    """Request of every build, without `out`, which each test adds."""
    from tests.support.media.painted_clips import make_cast

    folder = tmp_path_factory.mktemp("asked")
    make_cast(folder / "cast", *CAST)
    config = {
        "looks": {"text": False},
        "clips": {"width": 180, "height": 120},
        "captions": {"captioner": "server", "endpoint": captions.address, "model": "test-model", "concurrency": 1},
        "run": {"threads": 1, "films_at_once": 3},
    }
    films = [str(film) for film in numbered_films(folder / "films")]
    return {"films": films, "cast": str(folder / "cast"), "config": config}


@pytest.fixture(scope="module")
def plain(
    server: PrefectServer, asked: Asked, captions: CaptionServer, tmp_path_factory: pytest.TempPathFactory
) -> Contents:
    """Shards of the plain command, which asks for the captions of all films at the same time: there is no limit yet."""
    folder = tmp_path_factory.mktemp("plain")
    captions.answer = partial(answer_when, "two requests are open", lambda: captions.most_open > 1)
    server.run(*command(asked, folder))
    captions.answer = answer_slowly
    assert verify(Dataset(folder / "data")) == []
    return contents(folder / "data" / "shards")


@pytest.fixture(scope="module")
def deployed(server: PrefectServer) -> PrefectServer:
    """Server with all deployments, deployed twice; a limit changed in between is kept."""
    server.run("animegamer", "deploy")
    server.run("prefect", "gcl", "update", "tag:captions", "--limit", "1")
    server.run("animegamer", "deploy")
    limits = {limit["name"]: limit["limit"] for limit in server.post("v2/concurrency_limits/filter")}
    assert limits == {"tag:captions": 1, "tag:gpu": 1}
    assert len(server.post("automations/filter")) == 1
    assert len(server.post("deployments/filter")) == 2
    return server


class TestOnAServer:
    pytestmark = slow

    @pytest.fixture(autouse=True)
    def answered_as_before(self, captions: CaptionServer) -> Iterator[None]:
        yield
        captions.answer = answer_slowly

    @pytest.mark.nightly
    def test_a_worker_builds_the_same_as_the_command_within_the_limit(
        self, plain: Contents, deployed: PrefectServer, asked: Asked, captions: CaptionServer, tmp_path: Path
    ) -> None:
        captions.most_open = 0
        captions.answer = partial(answer_slowly, seconds=0.6)  # long enough for a bar, see `flows.artifacts.SECONDS`
        with deployed.worker("lone"):
            run = deployed.start(BUILD, {"request": {**asked, "out": str(tmp_path / "data")}})
            deployed.wait_for(run)
        assert differences(contents(tmp_path / "data" / "shards"), plain) == []
        assert captions.most_open == 1
        of_this_run = deployed.post("artifacts/filter", artifacts={"flow_run_id": {"any_": [run]}})
        made = {artifact["key"]: artifact["data"] for artifact in of_this_run}
        assert '"kept": "4"' in made["films-data"]
        assert str(tmp_path / "data" / "report.html") in made["results-data"]
        of_its_films = deployed.post("artifacts/filter", flow_runs={"parent_flow_run_id": {"any_": [run]}})
        assert any(artifact["type"] == "progress" for artifact in of_its_films)

    @pytest.mark.parametrize(
        ("wrong", "field"),
        [
            ({"out": "data"}, "request.out"),
            ({"films": ["film.mkv"]}, "request.films"),
            ({"until": "lunch"}, "request.until"),
            ({"config": {"clips": {"crf": 99}}}, "request.config.clips.crf"),
            ({"films": [f"s3://key:{SECRET}@bucket/film.mkv"]}, "request.films"),
            ({"out": f"https://host/data?token={SECRET}"}, "request.out"),
            ({"config": {"captions": {"endpoint": f"http://key:{SECRET}@host/v1"}}}, "endpoint"),
            ({"config": {"run": {"ray_address": f"ray://key:{SECRET}@host:1"}}}, "ray_address"),
        ],
    )
    def test_wrong_parameters_are_refused_before_anything_is_stored(
        self, deployed: PrefectServer, asked: Asked, wrong: dict[str, Any], field: str
    ) -> None:
        refusal = deployed.refusal(BUILD, {"request": {**asked, "out": "/data", **wrong}})
        assert field in refusal
        assert not [file for file in deployed.home.glob("*.db*") if SECRET.encode() in file.read_bytes()]

    @pytest.mark.nightly
    def test_a_killed_worker_loses_only_the_work_in_progress(
        self, plain: Contents, deployed: PrefectServer, asked: Asked, captions: CaptionServer, tmp_path: Path
    ) -> None:
        """The worker dies with its flow process, which holds the only slot for captions: run and slot are recovered."""
        data = tmp_path / "data"
        captions.requests.clear()
        captions.answer = partial(answer_slowly, seconds=2)
        with deployed.worker("doomed") as worker:
            run = deployed.start(BUILD, {"request": {**asked, "out": str(data)}})
            until("captions are asked for", lambda: len(captions.requests) > 2)
            deployed.kill(worker)
        captions.answer = answer_slowly
        done = {path: path.stat().st_mtime_ns for path in data.glob("films/*/*.json") if path.stem != "film"}
        assert done
        assert deployed.flow_run(run)["state_type"] == "RUNNING"
        deployed.wait_for(run, "CRASHED")
        with deployed.worker("heir"):
            deployed.run("prefect", "flow-run", "retry", run)
            until("the retry starts", lambda: deployed.flow_run(run)["state_type"] == "RUNNING")
            deployed.wait_for(run)
        assert differences(contents(data / "shards"), plain) == []
        assert {path: path.stat().st_mtime_ns for path in done} == done

    @pytest.mark.nightly
    def test_films_are_spread_over_two_workers(
        self, plain: Contents, deployed: PrefectServer, asked: Asked, tmp_path: Path
    ) -> None:
        """The planning run occupies a slot of its worker, so each worker has two."""
        request = {**with_runner("workers", asked), "out": str(tmp_path / "data")}
        with ExitStack() as stack:
            for name in ("one", "two"):
                stack.enter_context(deployed.worker(name, "--limit", "2"))
            run = deployed.start(BUILD, {"request": request})
            deployed.wait_for(run)
            children = deployed.post(
                "flow_runs/filter",
                flow_runs={"parent_flow_run_id": {"any_": [run]}},
                flows={"name": {"any_": ["onboard-film"]}},
            )
        assert len(children) == 3
        assert all(child["parameters"]["request"]["films"] == [] for child in children)
        assert len({child["infrastructure_pid"] for child in children}) == 3
        logs = {name: (deployed.folder / f"{name}.log").read_text() for name in ("one", "two")}
        ran = {name for name, log in logs.items() for child in children if child["id"] in log}
        assert ran == {"one", "two"}
        assert differences(contents(tmp_path / "data" / "shards"), plain) == []

    @pytest.mark.nightly
    def test_a_film_in_progress_at_a_worker_is_waited_for(
        self, plain: Contents, deployed: PrefectServer, asked: Asked, captions: CaptionServer, tmp_path: Path
    ) -> None:
        """Retry after an aborted build: its runs continue, and no film is processed by two of them."""
        request = {**with_runner("workers", asked), "out": str(tmp_path / "data")}
        captions.requests.clear()
        go_on = threading.Event()
        captions.answer = partial(answer_when, "the test goes on", go_on.is_set)
        with deployed.worker("both"):
            deployed.run(*command(asked, tmp_path), "--until", "cut")
            [film_id, *_] = sorted(path.name for path in (tmp_path / "data" / "films").iterdir())
            first = deployed.start(ONBOARD, {"film_id": film_id, "request": request}, "--flow-run-name", film_id)
            until("captions are asked for", lambda: captions.requests)
            build = deployed.start(BUILD, {"request": request})
            log = deployed.folder / "both.log"
            until("a log line", lambda: f"waiting for run {first} of an earlier build" in log.read_text())
            go_on.set()
            deployed.wait_for(build)
        runs = runs_of_films(deployed, tmp_path)[film_id]
        assert [run["state_type"] for run in runs] == ["COMPLETED"] * 2
        assert runs[0]["id"] == first
        assert runs[0]["end_time"] <= runs[1]["start_time"]
        assert differences(contents(tmp_path / "data" / "shards"), plain) == []

    @pytest.mark.nightly
    def test_a_build_without_workers_says_so_and_cancels_its_runs(
        self, deployed: PrefectServer, asked: Asked, captions: CaptionServer, tmp_path: Path
    ) -> None:
        captions.requests.clear()
        captions.answer = partial(answer_slowly, seconds=2)
        build = deployed.popen("build", *command(with_runner("workers", asked, films_at_once=1), tmp_path))
        log = deployed.folder / "build.log"
        until("a log line", lambda: "prefect worker start --pool animegamer" in log.read_text())
        with deployed.worker("late"):
            until("captions are asked for", lambda: captions.requests)
            build.send_signal(signal.SIGINT)
            assert build.wait(30) == 130, log.read_text()
            [[run]] = runs_of_films(deployed, tmp_path).values()
            deployed.wait_for(run["id"], "CANCELLED")


def runs_of_films(server: PrefectServer, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Worker runs for the dataset in `data` of a folder, by film, in the order of their start."""
    found = server.post("flow_runs/filter", flows={"name": {"any_": ["onboard-film"]}}, sort="START_TIME_ASC")
    runs: dict[str, list[dict[str, Any]]] = {}
    for run in found:
        if run["deployment_id"] and run["parameters"]["request"]["out"] == str(folder / "data"):
            runs.setdefault(run["parameters"]["film_id"], []).append(run)
    return runs


def command(asked: Asked, folder: Path) -> list[str]:
    """Plain command for a request; the dataset is made in `data` of this folder."""
    config = write_config(folder / "config.toml", **asked["config"])
    options = ["--out", str(folder / "data"), "--cast", asked["cast"], "--config", str(config)]
    return ["animegamer", "build", *asked["films"], *options]


def with_runner(runner: str, asked: Asked, **settings: int) -> Asked:
    """Request with another runner for its films."""
    config = asked["config"]
    return {**asked, "config": {**config, "run": {**config["run"], "runner": runner, **settings}}}


@pytest.mark.parametrize(
    ("settings", "said"),
    [({}, "prefect server start"), ({PREFECT_API_URL: "http://127.0.0.1:9/api"}, "127.0.0.1:9")],
)
def test_a_server_that_is_not_there_is_named(settings: dict[Any, str], said: str) -> None:
    with temporary_settings(settings, restore_defaults={PREFECT_API_URL} - settings.keys()):
        done = CliRunner().invoke(app, ["deploy"])
    assert done.exit_code == 1
    assert said in done.stderr


def test_paths_of_a_request_for_workers_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = BuildRequest(films=("film.mkv", "s3://bucket/film.mkv"), out="data", cast="cast").with_absolute_paths()
    assert request.films == (str(tmp_path / "film.mkv"), "s3://bucket/film.mkv")
    assert (request.out, request.cast) == (str(tmp_path / "data"), str(tmp_path / "cast"))


def test_only_a_run_of_a_deployment_waits_for_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take = partial(held, tmp_path, "second")
    with held(tmp_path, "first"), pytest.raises(HeldError, match="first"), acquire_with_retry(take):
        pass
    monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "of a worker")
    first = ExitStack()
    first.enter_context(held(tmp_path, "first"))
    threading.Timer(0.5, first.close).start()
    with acquire_with_retry(take), pytest.raises(HeldError, match="second"), held(tmp_path, "third"):
        pass
