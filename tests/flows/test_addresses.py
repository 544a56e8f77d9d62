"""Films, cast and dataset in an object store: the command as a user runs it, a real server, two machines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cv2
import fsspec  # type: ignore[import-untyped]
import numpy as np
import pytest
import webdataset as wds
from webdataset.gopen import gopen_schemes

from flows.dataset import onboard_film
from pipeline.core.config import checked
from pipeline.core.dialogue import SpokenLine
from pipeline.core.measurements import ClipSound
from pipeline.core.records import Clip, RecordError
from pipeline.core.store import FilmFolder
from pipeline.plan.build_plan import Plan, make_plan
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace
from tests.support.builds.real_builds import contents, write_config
from tests.support.datasets.built_dataset import SMALL, build_here
from tests.support.media.beeping_films import add_sound, beeps
from tests.support.media.films import make_film
from tests.support.media.subtitled_films import ASS_HEADER
from tests.support.servers.object_store import SECRET, ObjectStore
from training.data.sources import open_index

pytestmark = pytest.mark.slow
EVENT = "Dialogue: 0,0:00:00.50,0:00:01.00,Default,Ponyo,0,0,0,,"


class Machine:
    """User's machine: a separate folder for local copies, and the environment of the store."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        folder.mkdir()
        self.folder, self.store = folder, store
        write_config(folder / "small.toml")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command, check its exit code and return its whole output."""
        environment = {**os.environ, "ANIMEGAMER_WORK": str(self.folder / "work")}
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli", *arguments],
            cwd=self.folder, env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        assert SECRET not in done.stdout
        return done.stdout

    def build(self, *films: str, code: int = 0) -> str:
        """Build the dataset at `data` from these films, with the cast."""
        cast, out = self.store.address("cast"), self.store.address("data")
        return self.run("build", *films, "--out", out, "--cast", cast, "--config", "small.toml", code=code)


@pytest.fixture(scope="module")
def store(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    """Object store with two films and a cast."""
    home = tmp_path_factory.mktemp("films")
    picture = cv2.imencode(".png", np.full((64, 64, 3), 128, np.uint8))[1].tobytes()
    for number, scene in enumerate((70, 60)):
        film = make_film(home / f"{number}.mp4", frames=144 + number, scenes=[0, scene])
        object_store.put(f"films/film {number}.mp4", film.read_bytes())
    object_store.put("cast/Ponyo/front.png", picture)
    return object_store


@pytest.fixture(scope="module")
def films(store: ObjectStore) -> list[str]:
    return [store.address(f"films/film {number}.mp4") for number in range(2)]


@pytest.fixture(scope="module")
def built(store: ObjectStore, films: list[str], tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Machine that has built the dataset."""
    machine = Machine(tmp_path_factory.mktemp("first") / "machine", store)
    machine.build(*films)
    return machine


def test_it_equals_a_build_in_a_local_folder(
    built: Machine, store: ObjectStore, films: list[str], tmp_path: Path
) -> None:
    local = [tmp_path / "film 0.mp4", tmp_path / "film 1.mp4"]
    for path in local:
        path.write_bytes(store.contents("films/")[path.name])
    build_here(BuildRequest(films=tuple(local), out=tmp_path / "data", config=checked(SMALL, "test")))
    shards = {f"shards/{name}": content for name, content in contents(tmp_path / "data" / "shards").items()}
    assert {name: content for name, content in store.contents("data/").items() if name in shards} == shards
    assert "shards/index.json" in shards


def test_plain_webdataset_reads_the_shards_at_their_address(
    built: Machine, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading as shown in `docs/data-format.md`."""
    names = [name for name in store.contents("data/") if name.endswith(".tar")]
    assert names
    monkeypatch.setitem(gopen_schemes, "s3", lambda url, mode, _: fsspec.open(url, mode).open())
    source = wds.WebDataset([store.address(f"data/{name}") for name in names], shardshuffle=False)
    keys = [sample["__key__"] for sample in source.decode()]
    assert len(set(keys)) == len(keys) == sum(open_index(store.address("data")).counts.split.values())


def test_a_rerun_sends_a_page_that_was_not_sent_and_the_next_transfers_no_object(
    built: Machine, store: ObjectStore, films: list[str]
) -> None:
    """As after a lost network during the last transfer of a build."""
    [page] = built.folder.rglob("report.html")
    os.utime(page)  # newer than the sent one
    for written in ([("PUT", "data/report.html")], []):
        store.requests.clear()
        assert "nothing to do" in built.build(*films)
        assert store.written() == written
    fetched = [key for method, key in store.requests if method == "GET" and key]
    assert fetched == [], "listings only"
    assert not list(built.folder.rglob("film 0.mp4")), "copies of films are removed after the cut"


def test_another_machine_continues_the_dataset(
    built: Machine, store: ObjectStore, films: list[str], tmp_path: Path
) -> None:
    other = Machine(tmp_path / "machine", store)
    assert "every stage of every film is done" in other.run("status", store.address("data"))
    store.requests.clear()
    assert "nothing to do" in other.build(*films)
    assert {method for method, _ in store.requests} <= {"GET", "HEAD"}
    assert not list(other.folder.rglob("film 0.mp4")), "it was fetched to identify it by its content"
    assert "no fault" in other.run("verify", store.address("data"))


def test_the_number_of_films_kept_by_a_plan_is_bounded(
    store: ObjectStore, films: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first films are kept, since they are processed first; unusable ones are not kept at all."""
    store.put("films/broken.mp4", b"no film")
    monkeypatch.setattr("pipeline.plan.identify.KEPT_BYTES", len(store.contents("films/")["film 0.mp4"]) + 1000)
    request = BuildRequest(films=(store.address("films/broken.mp4"), *films), out=tmp_path / "data")
    plan = make_plan(request, Workspace(request.out))
    store.remove("films/broken.mp4")
    assert len(plan.films) == 2
    assert [path.name for path in (tmp_path / "data").rglob("*.mp4")] == ["film 0.mp4"]


def test_a_worker_with_copies_of_its_own_reads_subtitles_beside_a_film(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One machine plans, another onboards, as a worker does; the file changes once in between."""
    film = add_sound(make_film(tmp_path / "f.mp4", frames=96, scenes=[0]), tmp_path / "s.mp4", [(beeps(4, [1]), 0)])
    store.put("spoken/film.mp4", film.read_bytes())
    config = checked(SMALL | {"sound": {"keep": True}}, "test")
    films, out = (store.address("spoken/film.mp4"),), store.address("spoken-data")
    request = BuildRequest(films=films, out=out, config=config, until=Until.dialogue)

    def planned(said: str) -> Plan:
        store.put("spoken/film.ja.ass", f"{ASS_HEADER}{EVENT}{said}".encode("cp932"))
        monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "planner"))
        return make_plan(request, Workspace(out))

    def onboarded(plan: Plan) -> FilmFolder:
        monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "worker"))
        onboard_film.fn(plan.films[0], request.model_copy(update={"films": ()}))
        assert not [path for path in tmp_path.joinpath("worker").rglob("film.*") if path.suffix in (".mp4", ".ass")]
        monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "planner"))
        plan.workspace.fetch()
        return plan.dataset.folder(plan.films[0])

    folder = onboarded(planned("宗介!"))
    assert [line.said for line in folder.read("dialogue", SpokenLine)] == ["Ponyo: 宗介!"]
    clips = [row.clip_id for row in folder.read("sound", ClipSound)]
    assert clips == [clip.clip_id for clip in folder.read("clips", Clip)]
    assert all(folder.sound_path(clip_id).is_file() for clip_id in clips)
    before, plan = folder.stage_record("cut"), planned("ポニョ!")
    assert plan.unfinished[plan.films[0]][0].name == "dialogue"
    store.put("spoken/film.ja.ass", b"changed since")
    with pytest.raises(RecordError, match=r"its subtitles \.ja\.ass have changed since the build was planned"):
        onboarded(plan)
    folder = onboarded(planned("ハム!"))
    assert [line.said for line in folder.read("dialogue", SpokenLine)] == ["Ponyo: ハム!"]
    assert folder.stage_record("cut") == before


def test_missing_films_are_named_and_the_others_built(built: Machine, store: ObjectStore, films: list[str]) -> None:
    said = built.build(store.address("films/missing.mp4"), *films, code=2)
    assert "missing.mp4" in said
    assert "Traceback" not in said
    said = built.run("status", store.address("nowhere"), code=1)
    assert "s3://bucket/nowhere: no dataset there" in said
