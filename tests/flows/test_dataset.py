"""Flows on real films: results of a run, skipped work, and failures that are never reported as success."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import checked
from pipeline.core.errors import UserError
from pipeline.core.records import Clip, Damage, Scene, Verdict
from pipeline.core.stage import perform
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace
from pipeline.publish.coverage import film_spans, totals
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import numbered_film, numbered_films
from tests.support.datasets.built_dataset import SMALL, copy_of_built, small_film
from tests.support.media.films import corrupt, make_film
from tests.support.servers.caption_server import Answer, CaptionServer, good_answer

pytestmark = pytest.mark.usefixtures("prefect")

FAST = checked(SMALL, "test")


def test_a_film_becomes_a_published_dataset(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    film = small_film(tmp_path / "Film One.mp4")
    request = BuildRequest(films=(film,), out=tmp_path / "data", config=FAST)
    state = build_dataset(request, return_state=True)
    assert state.is_completed(), state.message
    for name in ("dataset.json", "README.md", "report.html", "shards/index.json"):
        assert (tmp_path / "data" / name).is_file(), name
    (folder,) = Dataset(tmp_path / "data").folders()
    assert folder.film_id.startswith("film-one-")
    assert len(folder.read("clips", Clip)) == 2


@pytest.mark.slow
def test_a_run_with_a_bad_film_ends_failed_and_publishes_the_good_one(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    good, bad = small_film(tmp_path / "good.mp4"), tmp_path / "bad.mp4"
    bad.write_bytes(b"")
    state = build_dataset(BuildRequest(films=(bad, good), out=tmp_path / "data", config=FAST), return_state=True)
    assert state.is_failed()
    assert "bad.mp4" in (state.message or "")
    assert (tmp_path / "data" / "shards" / "index.json").is_file()


@pytest.mark.slow
def test_a_film_that_fails_in_a_stage_fails_the_run_and_stops_no_other(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    good, noise = small_film(tmp_path / "good.mp4"), small_film(tmp_path / "noise.mp4", frames=120)
    corrupt(noise, 0.01, 0.9)  # the container still promises frames, the decoder gets none
    state = build_dataset(BuildRequest(films=(noise, good), out=tmp_path / "data", config=FAST), return_state=True)
    assert state.is_failed()
    assert "noise.mp4" in (state.message or "")
    broken, whole = Dataset(tmp_path / "data").folders()
    assert broken.failure is not None
    assert whole.table_path("verdicts").exists()


@pytest.mark.slow
def test_a_failure_that_is_not_in_the_film_is_listed_too(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    good, blocked = small_film(tmp_path / "good.mp4"), small_film(tmp_path / "blocked.mp4", frames=120)
    request = BuildRequest(films=(blocked, good), out=tmp_path / "data", config=FAST)
    build_dataset(request.model_copy(update={"until": Until.probe}))
    folder, whole = Dataset(tmp_path / "data").folders()
    (folder.path / "clips").write_text("a file where the clips should go")
    state = build_dataset(request, return_state=True)
    assert (state.message or "").startswith("blocked.mp4: ")
    assert "cannot be used: File exists; give access to it" in (state.message or "")
    assert folder.failure is not None
    assert whole.table_path("verdicts").exists()


@pytest.mark.slow
def test_one_content_under_two_names_is_one_film(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    film = small_film(tmp_path / "film.mp4")
    copy = tmp_path / "another name.mp4"
    copy.write_bytes(film.read_bytes())
    request = BuildRequest(films=(film, copy), out=tmp_path / "data", config=FAST, until=Until.crop)
    assert build_dataset(request, return_state=True).is_completed()
    (folder,) = Dataset(tmp_path / "data").folders()
    assert folder.film.name == "film.mp4"
    assert [path.name for path in (tmp_path / "data" / "films").iterdir()] == [folder.film_id]


def test_a_build_that_failed_before_its_first_film_has_failed(tmp_path: Path) -> None:
    """The flow failed before the first film: no film has a failure, and none exists."""
    from flows.console.summary import print_summary

    request = BuildRequest(films=(small_film(tmp_path / "film.mp4"),), out=tmp_path / "data", config=FAST)
    plan = make_plan(request, Workspace(request.out))
    assert print_summary(plan, ["the store cannot be reached"]) == 1
    perform(plan.stages[0], plan.dataset.folder(*plan.films))
    only_crop = replace(plan, stages=plan.stages[:1])
    assert print_summary(only_crop, ["another film: no film"]) == 2
    assert print_summary(only_crop, []) == 0


@pytest.mark.slow
def test_a_film_left_half_redone_is_not_published(tmp_path: Path) -> None:
    """Its later tables refer to clips that no longer exist."""
    from flows.dataset import build_dataset

    (first, data), second = copy_of_built(tmp_path), small_film(tmp_path / "second.mp4", frames=150)
    request = BuildRequest(films=(first,), out=data, config=FAST)
    other_margin = checked({**FAST.model_dump(), "clips": {"width": 180, "height": 120, "margin_frames": 5}}, "test")
    build_dataset(request.model_copy(update={"config": other_margin, "until": Until.cut}))
    assert build_dataset(request.model_copy(update={"films": (str(second),)}), return_state=True).is_completed()
    index = json.loads((tmp_path / "data" / "shards" / "index.json").read_text())
    assert {shard["film_id"] for shard in index["shards"]} == {Dataset(tmp_path / "data").folders()[1].film_id}
    assert verify(Dataset(tmp_path / "data")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "changed"),
    [("motion", {"edges": [1, 2, 3, 4]}), ("motion", {"scale": 0.4}), ("clips", {"width": 192, "height": 128})],
)
def test_a_build_that_would_mix_two_kinds_is_refused(tmp_path: Path, section: str, changed: dict[str, Any]) -> None:
    (first, data), second = copy_of_built(tmp_path), small_film(tmp_path / "second.mp4", frames=150)
    request = BuildRequest(films=(first,), out=data, config=FAST)
    other = request.model_copy(update={"config": checked({**FAST.model_dump(), section: changed}, "test")})
    with pytest.raises(UserError, match=r"film.mp4.*name all its films"):
        make_plan(other.model_copy(update={"films": (str(second),)}), Workspace(other.out))
    make_plan(other.model_copy(update={"films": (str(first), str(second))}), Workspace(other.out))


@pytest.mark.slow
def test_a_captioner_that_is_down_loses_nothing_and_the_old_one_still_works(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    film, data = copy_of_built(tmp_path)
    request = BuildRequest(films=(film,), out=data, config=FAST)
    shards = {path: path.read_bytes() for path in (tmp_path / "data" / "shards").rglob("*.tar")}
    refusing = {"captioner": "server", "attempts": 1}
    with CaptionServer(lambda _: Answer(status=401)) as server:
        refusing["endpoint"] = server.address
        down = checked({**FAST.model_dump(), "captions": refusing}, "test")
        state = build_dataset(request.model_copy(update={"config": down}), return_state=True)
    assert "401" in (state.message or "")
    assert {path: path.read_bytes() for path in shards} == shards
    assert build_dataset(request, return_state=True).is_completed()
    assert Dataset(tmp_path / "data").folders()[0].failure is None
    assert verify(Dataset(tmp_path / "data")) == []


@pytest.mark.slow
def test_the_budget_counts_the_batches_of_a_film_at_a_worker_together(tmp_path: Path) -> None:
    from flows.dataset import onboard_film

    film, out = numbered_film(tmp_path / "film.mp4", 0), tmp_path / "data"
    with CaptionServer(good_answer) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model"}
        budget = {"batch": 1, "concurrency": 1, "most_requests": 3}
        config = checked({**SMALL, "captions": {**captions, **budget}}, "test")
        request = BuildRequest(films=(film,), out=out, config=config)
        (film_id,) = make_plan(request, Workspace(request.out)).films
        state = onboard_film(film_id, request, return_state=True)
        assert len(server.requests) == 3
    assert state.is_failed()
    assert "the 3 requests" in (state.message or "")


@pytest.mark.slow
def test_a_key_that_the_server_refuses_is_sent_once_for_all_films_of_a_build(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    films = tuple(numbered_films(tmp_path / "films", 2))
    with CaptionServer(lambda _: Answer(status=401, raw=b"no such key")) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", "concurrency": 1}
        config = checked({**SMALL, "captions": captions, "run": {"films_at_once": 1}}, "test")
        state = build_dataset(BuildRequest(films=films, out=tmp_path / "data", config=config), return_state=True)
        assert len(server.requests) == 1
    assert (state.message or "").count("no such key") == 2


@pytest.mark.slow
def test_a_second_build_redoes_nothing_and_a_new_threshold_only_the_verdicts(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    film, data = copy_of_built(tmp_path)
    request = BuildRequest(films=(film,), out=data, config=FAST)
    (folder,) = Dataset(data).folders()
    files = (path for path in folder.path.rglob("*") if path.is_file() and "/." not in str(path))
    before = {path: path.stat().st_mtime_ns for path in files}
    build_dataset(request)
    assert {path: path.stat().st_mtime_ns for path in before} == before

    stricter = checked({**FAST.model_dump(), "selection": {"min_light": 255}}, "test")
    build_dataset(request.model_copy(update={"config": stricter}))
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed <= {"screened.parquet", "screened.json", "captions.parquet", "captions.json", "verdicts.parquet"}
    assert not any(verdict.keep for verdict in folder.read("verdicts", Verdict))


@pytest.mark.slow
def test_a_build_stopped_early_is_continued(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    request = BuildRequest(films=(small_film(tmp_path / "film.mp4"),), out=tmp_path / "data", config=FAST)
    build_dataset(request.model_copy(update={"until": Until.cut}))
    (folder,) = Dataset(tmp_path / "data").folders()
    assert folder.table_path("clips").exists()
    assert not folder.table_path("looks").exists()
    made = folder.table_path("clips").stat().st_mtime_ns
    build_dataset(request)
    assert folder.table_path("verdicts").exists()
    assert folder.table_path("clips").stat().st_mtime_ns == made


@pytest.mark.slow
@pytest.mark.parametrize("end_seconds", [None, 5.0])
def test_the_coverage_of_a_film_includes_every_second(tmp_path: Path, end_seconds: float | None) -> None:
    from flows.dataset import build_dataset

    film = make_film(tmp_path / "film.mp4", frames=240, fps=Fraction(24000, 1001), scenes=[0, 70, 90, 200])
    config = checked({**FAST.model_dump(), "film": {"end_seconds": end_seconds}}, "test")
    build_dataset(BuildRequest(films=(film,), out=tmp_path / "data", config=config))
    (folder,) = Dataset(tmp_path / "data").folders()
    spans = film_spans(
        folder.film,
        folder.read("scenes", Scene),
        folder.read("damage", Damage),
        folder.read("clips", Clip),
        folder.read("verdicts", Verdict),
        end_seconds,
    )
    assert sum(totals(spans).values()) == pytest.approx(240 * 1001 / 24000, abs=1001 / 24000)
    assert any(span.fate == "kept" for span in spans)


@pytest.mark.slow
def test_shards_of_an_aborted_build_under_the_old_index_are_written_again(tmp_path: Path) -> None:
    """The rule holds even for a build with the old settings, which match the note of the published files."""
    from flows.dataset import build_dataset

    def build(**sections: dict[str, Any]) -> bool:
        config = checked({**FAST.model_dump(), **sections}, "test")
        request = BuildRequest(films=(film,), out=tmp_path / "data", config=config)
        return build_dataset(request, return_state=True).is_completed()

    def tars() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in index.parent.rglob("*.tar")}

    film, data = copy_of_built(tmp_path)
    index = data / "shards" / "index.json"
    before, old_index = tars(), index.rename(tmp_path / "index.json")
    index.mkdir()  # the tars are renamed into place, and then the index cannot be written
    assert not build(motion={"edges": [1e-6, 2e-6, 3e-6, 1e3]})
    index.rmdir()
    old_index.rename(index)
    assert tars() != before
    assert build()
    assert tars() == before
    assert verify(Dataset(tmp_path / "data")) == []
