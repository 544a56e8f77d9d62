"""Reruns: stages redone after each kind of change, and no others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest

from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Clip
from pipeline.core.stage import Outcome, Pending, Stage, perform
from pipeline.core.store import Dataset, FilmFolder
from pipeline.plan.build_plan import _stages_left, make_plan
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.publish import Select, is_published
from pipeline.plan.request import Until
from pipeline.plan.status import StageState, film_rows
from pipeline.plan.workspace import Workspace
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import numbered_film
from tests.support.builds.rebuilt_films import animegamer, redone, request_for, states
from tests.support.datasets.built_dataset import build_here
from tests.support.media.films import corrupt, make_film
from tests.support.media.painted_clips import WORDS
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer

pytestmark = pytest.mark.slow


def only(ran: dict[str, list[str]]) -> list[str]:
    (stages,) = ran.values()
    return stages


def test_moving_renaming_and_touching_a_film_redo_nothing(tmp_path: Path, film: Path) -> None:
    out = tmp_path / "data"
    assert only(redone(request_for(film, out=out))) == list(STAGE_NAMES)
    moved = film.rename(tmp_path / "another name.mkv")
    os.utime(moved, (1, 1))
    assert only(redone(request_for(moved, out=out))) == []
    (folder,) = Dataset(out).folders()
    assert folder.film.source == str(moved)
    assert folder.film.name == "film.mp4"


def test_new_content_replaces_the_old_until_the_old_is_restored(tmp_path: Path, built: tuple[Path, Path]) -> None:
    film, out = built
    old, before = film.read_bytes(), [Dataset(out).folders()[0].film_id]
    make_film(film, frames=150, scenes=[0, 60])
    request = request_for(film, out=out)
    plan = make_plan(request, Workspace(request.out))
    assert "which replaces " + before[0] in " ".join(plan.notices)
    assert only(redone(request_for(film, out=out))) == list(STAGE_NAMES)
    assert [entry.film_id for entry in Dataset(out).record.films] == list(plan.films) != before
    (tmp_path / "restored.mp4").write_bytes(old)
    assert redone(request_for(tmp_path / "restored.mp4", out=out)) == {before[0]: []}, (
        "a restored film is recognised under any name"
    )
    film.write_bytes(old)
    assert redone(request_for(film, out=out)) == {before[0]: []}
    assert [entry.film_id for entry in Dataset(out).record.films] == before


def test_a_cast_left_out_is_named(tmp_path: Path, built: tuple[Path, Path]) -> None:
    film, out = built
    picture = tmp_path / "cast" / "Anna" / "front.png"
    picture.parent.mkdir(parents=True)
    assert cv2.imwrite(str(picture), np.full((64, 64, 3), 200, np.uint8))
    with_cast = request_for(film, out=out).model_copy(update={"cast": str(tmp_path / "cast")})
    assert "Anna" not in " ".join(make_plan(with_cast, Workspace(with_cast.out)).notices)
    without = request_for(film, out=out)
    assert "the dataset has Anna: add its --cast" in " ".join(make_plan(without, Workspace(without.out)).notices)


@pytest.mark.parametrize(
    ("changed", "ran"),
    [
        ({"selection": {"min_light": 255}}, ["screened", "captions"]),
        ({"selection": {"duplicate_distance": 3}}, ["screened"]),
        ({"motion": {"edges": [0.1, 0.2, 0.3, 0.4]}}, ["screened", "captions"]),
        ({"motion": {"background_px": 0.3}}, ["motion", "screened", "captions"]),
        ({"looks": {"text": False, "text_frames": 1}}, ["looks"]),
        ({"clips": {"width": 180, "height": 120, "margin_frames": 4}}, STAGE_NAMES[1:]),
        ({"run": {"threads": 1}}, []),
        ({"shards": {"samples": 7}}, []),
    ],
)
def test_a_changed_setting_redoes_dependent_stages(
    built: tuple[Path, Path], changed: dict[str, Any], ran: list[str]
) -> None:
    """An unchanged result ends the chain of reruns: the text detector runs with other settings and still finds none."""
    film, out = built
    request = request_for(film, out=out, **changed)
    first = next((name for name in STAGE_NAMES if states(request, out)[name] is not StageState.done), None)
    assert first == (ran[0] if ran else None)
    assert only(redone(request)) == list(ran)
    assert only(redone(request)) == []


def test_a_deleted_or_damaged_clip_is_made_again_and_no_later_stage(built: tuple[Path, Path]) -> None:
    film, out = built
    (folder,) = Dataset(out).folders()
    first, second = (folder.clip_path(clip.clip_id) for clip in folder.read("clips", Clip))
    whole = first.read_bytes(), second.read_bytes()
    first.unlink()
    corrupt(second, 0.3, 0.6)  # of the same length
    (row,) = film_rows(Dataset(out), request_for(out=out))
    assert row.cells["cut"].state is StageState.stale
    assert "(2 of 5 files)" in row.cells["cut"].why
    assert only(redone(request_for(film, out=out))) == ["cut"]
    assert (first.read_bytes(), second.read_bytes()) == whole


def test_a_removed_film_folder_is_made_again(built: tuple[Path, Path]) -> None:
    film, out = built
    film_id = Dataset(out).folders()[0].film_id
    shutil.rmtree(out / "films" / film_id)
    assert set(states(request_for(out=out), out).values()) == {StageState.missing}
    assert redone(request_for(film, out=out)) == {film_id: list(STAGE_NAMES)}


def test_a_second_build_names_the_holder_of_the_dataset(tmp_path: Path, film: Path) -> None:
    with held(tmp_path / "data", "animegamer build"):
        done = animegamer("build", film, "--out", tmp_path / "data")
    assert done.returncode == 1
    assert f"held by `animegamer build`, process {os.getpid()} on " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
@pytest.mark.usefixtures("prefect")
def test_changed_edges_ask_only_about_clips_of_another_level(tmp_path: Path) -> None:
    """Stored replies are never requested again, whatever the settings in between."""
    from flows.dataset import build_dataset

    film = numbered_film(tmp_path / "film.mp4", 0)
    with CaptionServer(good_answer) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", "failed_limit": 1.0}

        def build(**sections: Mapping[str, Any]) -> int:
            """Build and return the number of questions."""
            before = len(server.requests)
            request = request_for(film, out=tmp_path / "data", captions=captions, **sections)
            build_dataset(request.model_copy(update={"until": Until.publish, "ask_again": True}), return_state=True)
            return sum(request.kind in ("who", "what") for request in server.requests[before:])

        first = build()
        assert first > 0
        assert build() == 0
        folder: FilmFolder = Dataset(tmp_path / "data").folders()[0]
        scopes = sorted(row["scope_px"] for row in rows_of(folder, "motion"))
        between = (scopes[0] + scopes[-1]) / 2
        everything = build(motion={"edges": [1e-6, 2e-6, 3e-6, scopes[-1] + 1]})
        assert 0 < everything <= first
        one_moved = build(motion={"edges": [1e-6, 2e-6, 3e-6, between]})
        assert 0 < one_moved < everything, "only those above the edge have another level"
        assert build(motion={"edges": [1e-6, 2e-6, 3e-6, scopes[-1] + 1]}) == 0
        assert build(selection={"min_light": 200.0}) == 0


@pytest.mark.usefixtures("prefect")
def test_a_later_answer_is_published_and_finishes_the_build(tmp_path: Path) -> None:
    """Verdicts and ingredients are unchanged: only the content of the table shows that the shards are stale."""
    from flows.dataset import build_dataset

    film, data = numbered_film(tmp_path / "film.mp4", 0), Dataset(tmp_path / "data")

    def refuse_one(request: Request) -> Answer:
        return Answer(status=400) if request.number == 1 else good_answer(request)

    with CaptionServer(refuse_one) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", "failed_limit": 1.0}
        request = request_for(film, out=data.root, captions=captions, selection={"uncaptioned": "keep"})
        request = request.model_copy(update={"until": Until.publish})

        def build() -> set[str]:
            """Build and return the subjects of the published clips."""
            assert build_dataset(request, return_state=True).is_completed()
            assert verify(data) == []
            return {json.loads(text)["caption"]["S"] for text in members(data.root / "shards", ".json")}

        assert None in build()
        server.answer = good_answer
        assert build() == set(WORDS[:4])
        (folder,) = data.folders()
        reply = sorted((folder.path / "replies").iterdir())[0]
        reply.write_text("damaged")  # the error's remedy is to delete it
        reply.unlink()
        server.answer = lambda request: Answer(good_answer(request).text.replace("apple", "pear"))
        assert build() == set(WORDS[:4]), "the caption is there, and is not paid for twice"
        request = request.model_copy(update={"ask_again": True})
        assert build() == {"pear", *WORDS[1:4]}
    plan = make_plan(request, Workspace(request.out))  # no question is left
    assert not plan.unfinished
    assert is_published(data, plan.config)
    for path in sorted(folder.path.rglob("*.json"), reverse=True):
        os.utime(path)  # as on another machine, where files arrive in any order
    assert not make_plan(request, Workspace(request.out)).unfinished


def members(shards: Path, kind: str) -> list[bytes]:
    """Files of one kind of the samples in all shards."""
    found = []
    for path in shards.rglob("*.tar"):
        with tarfile.open(path) as tar:
            found += [file.read() for entry in tar if entry.name.endswith(kind) and (file := tar.extractfile(entry))]
    return found


def test_films_of_different_level_edges_are_not_published_together(tmp_path: Path) -> None:
    """The run of the second film was cancelled before its start: it is complete, with the old edges."""
    films = [make_film(tmp_path / f"{number}.mp4", frames=144 + number, scenes=[0, 70]) for number in range(2)]
    request = request_for(*films, out=tmp_path / "data")
    redone(request)
    data = Dataset(tmp_path / "data")
    assert Select(request.config).run(data, silent)
    before = {path: path.read_bytes() for path in data.root.rglob("verdicts.parquet")}
    other = request_for(*films, out=tmp_path / "data", motion={"edges": [1e-6, 2e-6, 3e-6, 1e3]})
    plan = make_plan(other, Workspace(other.out))
    with pytest.raises(UserError, match=r"level edges of several kinds: .*dataset\.json.*again together"):
        Select(plan.config).run(data, silent)
    for stage in plan.stages:
        perform(stage, data.folders()[0])
    with pytest.raises(UserError, match=r"level edges"):
        Select(plan.config).run(data, silent)
    assert {path: path.read_bytes() for path in before} == before
    redone(other)
    assert Select(plan.config).run(data, silent)


def test_damaged_verdicts_are_made_again(built: tuple[Path, Path]) -> None:
    film, out = built
    request, data = request_for(film, out=out), Dataset(out)
    assert is_published(data, request.config)
    (path,) = data.root.rglob("verdicts.parquet")
    whole = path.read_bytes()
    path.write_bytes(b"damaged")
    assert not is_published(data, request.config)
    assert film_rows(data, request)[0].kept is None
    assert Select(request.config).run(data, silent)
    assert path.read_bytes() == whole
    assert is_published(data, request.config)


class Unjudgeable(Stage):
    """Stage whose pending work cannot be read, as with a damaged reply."""

    name: ClassVar[str] = "captions"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ()

    def ingredients(self) -> dict[str, Any]:
        return {}

    def pending(self, folder: FilmFolder, *, current: bool) -> Pending:  # noqa: ARG002
        raise UserError("a reply is damaged")

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:  # noqa: ARG002
        return Outcome(tables={})


def test_a_film_that_cannot_be_judged_stops_no_plan(built: tuple[Path, Path]) -> None:
    """Its own run raises the error and saves it; the other films go on."""
    (folder,) = Dataset(built[1]).folders()
    assert _stages_left(folder, (Unjudgeable(),)) != ()


def rows_of(folder: FilmFolder, table: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder.table_path(table)) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist()
    return rows


def test_a_finished_dataset_is_recognised_without_starting_prefect(tmp_path: Path) -> None:
    """CPU time, since the machine does other work too, relative to the start-up, since it may be slow."""
    films = [make_film(tmp_path / f"film {number}.mp4", frames=50 + number) for number in range(10)]
    settings = tmp_path / "small.toml"
    settings.write_text("[looks]\ntext = false\n[clips]\nwidth = 180\nheight = 120\n")
    build = ("build", *films, "--out", tmp_path / "data", "--config", settings)
    build_here(request_for(*films, out=tmp_path / "data").model_copy(update={"until": Until.publish}))
    start_up, _ = cpu_seconds("-c", "import pipeline.plan.publish, pipeline.plan.build_plan, flows.console.summary")
    spent, said = cpu_seconds("-X", "importtime", "-m", "flows.cli", *build)
    assert "nothing to do" in said
    assert "| prefect" not in said
    print(f"{spent:.1f} s of CPU, of which {start_up:.1f} s to start")
    assert spent < 4 * start_up, "where the start takes a second, the target is 5 s"


def cpu_seconds(*arguments: object) -> tuple[float, str]:
    """CPU time and error output of a Python process, which must succeed."""
    before = os.times()
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=True)
    after = os.times()
    taken = after.children_user + after.children_system - before.children_user - before.children_system
    return taken, done.stderr


def test_a_copied_dataset_is_finished(tmp_path: Path, built: tuple[Path, Path]) -> None:
    """Inodes and times differ: all files are read once more and found unchanged."""
    film, out = built
    shutil.copytree(out, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(tmp_path / "copy" / ".cache")
    assert only(redone(request_for(film, out=tmp_path / "copy"))) == []
