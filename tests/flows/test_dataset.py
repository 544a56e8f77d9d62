"""Flows on real films: results of a run, skipped work, and failures that are never reported as success."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prefect import State
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.dataset import build_dataset, onboard_film
from flows.engine import run
from pipeline.core.config import checked
from pipeline.core.records import Clip
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import numbered_film
from tests.support.datasets.built_dataset import SMALL, copy_of_built, small_film
from tests.support.servers.caption_server import Answer, CaptionServer, good_answer

FAST = checked(SMALL, "test")


def built(request: BuildRequest) -> State[Any]:
    """Final state of a build without a server, whose start takes longer than a small build."""
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        return run(build_dataset, request)


def test_a_film_becomes_a_published_dataset(tmp_path: Path) -> None:
    film = small_film(tmp_path / "Film One.mp4")
    request = BuildRequest(films=(film,), out=tmp_path / "data", config=FAST)
    state = built(request)
    assert state.is_completed(), state.message
    for name in ("dataset.json", "README.md", "report.html", "shards/index.json"):
        assert (tmp_path / "data" / name).is_file(), name
    (folder,) = Dataset(tmp_path / "data").folders()
    assert folder.film_id.startswith("film-one-")
    assert len(folder.read("clips", Clip)) == 2


@pytest.mark.slow
def test_a_failure_that_is_not_in_the_film_is_listed_too(tmp_path: Path) -> None:
    good, blocked = small_film(tmp_path / "good.mp4"), small_film(tmp_path / "blocked.mp4", frames=120)
    request = BuildRequest(films=(blocked, good), out=tmp_path / "data", config=FAST)
    built(request.model_copy(update={"until": Until.probe}))
    folder, whole = Dataset(tmp_path / "data").folders()
    (folder.path / "clips").write_text("a file where the clips should go")
    state = built(request)
    assert (state.message or "").startswith("blocked.mp4: ")
    assert "File exists" in (state.message or "")
    assert folder.failure is not None
    assert whole.table_path("verdicts").exists()


@pytest.mark.slow
def test_a_film_left_half_redone_is_not_published(tmp_path: Path) -> None:
    """Its later tables refer to clips that no longer exist."""
    (first, data), second = copy_of_built(tmp_path), small_film(tmp_path / "second.mp4", frames=150)
    request = BuildRequest(films=(first,), out=data, config=FAST)
    other_margin = checked({**FAST.model_dump(), "clips": {"width": 180, "height": 120, "margin_frames": 5}}, "test")
    built(request.model_copy(update={"config": other_margin, "until": Until.cut}))
    assert built(request.model_copy(update={"films": (str(second),)})).is_completed()
    index = json.loads((tmp_path / "data" / "shards" / "index.json").read_text())
    assert {shard["film_id"] for shard in index["shards"]} == {Dataset(tmp_path / "data").folders()[1].film_id}
    assert verify(Dataset(tmp_path / "data")) == []


@pytest.mark.slow
def test_a_captioner_that_is_down_loses_nothing_and_the_old_one_still_works(tmp_path: Path) -> None:
    film, data = copy_of_built(tmp_path)
    request = BuildRequest(films=(film,), out=data, config=FAST)
    shards = {path: path.read_bytes() for path in (tmp_path / "data" / "shards").rglob("*.tar")}
    refusing = {"captioner": "server", "attempts": 1}
    with CaptionServer(lambda _: Answer(status=401)) as server:
        refusing["endpoint"] = server.address
        down = checked({**FAST.model_dump(), "captions": refusing}, "test")
        state = built(request.model_copy(update={"config": down}))
    assert "401" in (state.message or "")
    assert {path: path.read_bytes() for path in shards} == shards
    assert built(request).is_completed()
    assert Dataset(tmp_path / "data").folders()[0].failure is None
    assert verify(Dataset(tmp_path / "data")) == []


@pytest.mark.slow
def test_the_budget_counts_the_batches_of_a_film_at_a_worker_together(tmp_path: Path) -> None:
    film, out = numbered_film(tmp_path / "film.mp4", 0), tmp_path / "data"
    with CaptionServer(good_answer) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model"}
        budget = {"batch": 1, "concurrency": 1, "most_requests": 3}
        config = checked({**SMALL, "captions": {**captions, **budget}}, "test")
        request = BuildRequest(films=(film,), out=out, config=config)
        (film_id,) = make_plan(request, Workspace(request.out)).films
        with temporary_settings(restore_defaults={PREFECT_API_URL}):
            state = run(onboard_film, film_id, request)
        assert len(server.requests) == 3
    assert state.is_failed()
    assert "the 3 requests" in (state.message or "")


@pytest.mark.slow
def test_shards_of_an_aborted_build_under_the_old_index_are_written_again(tmp_path: Path) -> None:
    """The rule holds even for a build with the old settings, which match the note of the published files."""

    def build(**sections: dict[str, Any]) -> bool:
        config = checked({**FAST.model_dump(), **sections}, "test")
        request = BuildRequest(films=(film,), out=tmp_path / "data", config=config)
        return built(request).is_completed()

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
