"""Reruns: stages redone after each kind of change, and no others."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.dataset import build_dataset
from flows.engine import run
from pipeline.core.errors import UserError
from pipeline.core.progress import silent
from pipeline.core.records import Clip, Verdict
from pipeline.core.stage import perform
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.publish import Select, is_published
from pipeline.plan.request import Until
from pipeline.plan.status import StageState, film_rows
from pipeline.plan.workspace import Workspace
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import numbered_film
from tests.support.builds.rebuilt_films import redone, request_for, states
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


@pytest.mark.parametrize(
    ("changed", "ran"),
    [
        ({"selection": {"min_light": 255}}, ["screened", "captions"]),
        ({"motion": {"edges": [0.1, 0.2, 0.3, 0.4]}}, ["screened", "captions"]),
        ({"motion": {"background_px": 0.3}}, ["motion", "screened", "captions"]),
        ({"looks": {"text": False, "text_frames": 1}}, ["looks"]),
        (
            {"clips": {"width": 180, "height": 120, "margin_frames": 4}},
            [name for name in STAGE_NAMES[1:] if name != "dialogue"],
        ),
        ({"run": {"threads": 1}, "shards": {"samples": 7}}, []),
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


def test_a_film_whose_block_is_gone_has_no_skipped_clip(built: tuple[Path, Path]) -> None:
    film, out = built

    def skipped(*blocks: dict[str, Any]) -> list[bool]:
        assert only(redone(request_for(film, out=out, films=blocks))) == ["screened", "captions"]
        (folder,) = Dataset(out).folders()
        return ["skipped" in verdict.reasons for verdict in folder.read("screened", Verdict)]

    assert skipped({"match": film.name, "skip": ["0:00-1:00"]}) == [True, True]
    assert skipped() == [False, False]


def test_a_deleted_or_damaged_clip_is_made_again_and_no_later_stage(built: tuple[Path, Path]) -> None:
    film, out = built
    (folder,) = Dataset(out).folders()
    first, second = (folder.clip_path(clip.clip_id) for clip in folder.read("clips", Clip))
    whole = first.read_bytes(), second.read_bytes()
    first.unlink()
    corrupt(second, 0.3, 0.6)  # of the same length
    (row,) = film_rows(Dataset(out), request_for(out=out))
    assert row.cells["cut"].state is StageState.stale
    assert "(2 of 6 files)" in row.cells["cut"].why
    assert only(redone(request_for(film, out=out))) == ["cut"]
    assert (first.read_bytes(), second.read_bytes()) == whole


def test_a_later_answer_is_published_and_finishes_the_build(tmp_path: Path) -> None:
    """Verdicts and ingredients are unchanged: only the content of the table shows that the shards are stale."""
    film, data = numbered_film(tmp_path / "film.mp4", 0), Dataset(tmp_path / "data")

    def refuse_one(request: Request) -> Answer:
        return Answer(status=400) if request.number == 1 else good_answer(request)

    with CaptionServer(refuse_one) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", "failed_limit": 1.0}
        request = request_for(film, out=data.root, captions=captions, selection={"uncaptioned": "keep"})
        request = request.model_copy(update={"until": Until.publish})

        def build() -> set[str]:
            """Build and return the subjects of the published clips."""
            with temporary_settings(restore_defaults={PREFECT_API_URL}):
                assert run(build_dataset, request).is_completed()
            assert verify(data) == []
            found = set()
            for path in (data.root / "shards").rglob("*.tar"):
                with tarfile.open(path) as tar:
                    samples = [tar.extractfile(entry) for entry in tar if entry.name.endswith(".json")]
                    found |= {json.load(sample)["caption"]["S"] for sample in samples if sample}
            return found

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


def test_a_copied_dataset_is_finished(tmp_path: Path, built: tuple[Path, Path]) -> None:
    """Inodes and times differ: all files are read once more and found unchanged."""
    film, out = built
    shutil.copytree(out, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(tmp_path / "copy" / ".cache")
    assert only(redone(request_for(film, out=tmp_path / "copy"))) == []
