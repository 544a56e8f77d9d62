"""Estimate of a build: near what Big Buck Bunny took, scaled by settings, and only for the work that is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.config import Config, SelectionSettings, checked
from pipeline.core.stage import Stage
from pipeline.plan.build_plan import Plan
from pipeline.plan.estimate import KEPT_SHARE, Estimate, estimate
from pipeline.plan.film_stages import planned_stages
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from pipeline.stages.selection import Screen
from tests.support import records
from tests.support.media.painted_clips import clip_ids, make_cast, make_screened_film, stage_for
from tests.support.servers.caption_server import CaptionServer, good_answer

BUNNY_SECONDS = 596.5


def estimated(root: Path, left: int = 6, cast: str | None = None, **sections: dict[str, object]) -> Estimate:
    """Estimate for one film of 1280x720, with its last `left` stages to do; eight clips if it is cut already."""
    film = records.film(seconds=BUNNY_SECONDS)
    config = checked(sections, "test") if sections else Config()
    request = BuildRequest(films=(film.name,), out=root, cast=cast, config=config)
    folder = Workspace(request.out).dataset.folder(film.film_id)
    folder.save_film(film)
    folder.write("clips", [records.clip(start_seconds=2.0 * number, index=number) for number in range(8)])
    stages = planned_stages(request.model_copy(update={"cast": None}), PUBLISHED_EDGES)
    return estimate(plan_of(request, {film.film_id: stages[-left:]} if left else {}))


def plan_of(request: BuildRequest, unfinished: dict[str, tuple[Stage, ...]]) -> Plan:
    workspace, stages = Workspace(request.out), next(iter(unfinished.values()), ())
    record = workspace.dataset.record
    return Plan(request, workspace, stages, tuple(unfinished), unfinished, (), (), (), record, frozenset())


def test_the_film_of_the_demo_is_estimated_within_half_as_much_again(tmp_path: Path) -> None:
    """Measured by `make bench`: 197 clips and 104 CPU seconds of the whole film, 48 and 25 of its first 125 seconds."""
    whole, start = estimated(tmp_path), estimated(tmp_path, film={"end_seconds": 125})
    assert 197 / 1.5 < whole.clips < 197 * 1.5
    assert 48 / 1.5 < start.clips < 48 * 1.5
    assert 104 / 1.5 < 3600 * whole.cpu_hours < 104 * 1.5
    assert 25 / 1.5 < 3600 * start.cpu_hours < 25 * 1.5
    assert 1 / 1.5 < whole.gigabytes / whole.film_hours < 1.5
    assert whole.film_hours == pytest.approx(BUNNY_SECONDS / 3600)


def test_sound_adds_its_share(tmp_path: Path) -> None:
    """Measured: the sound of 60 clips of the film took 6.2 CPU seconds, and 2 MB beside the clips."""
    silent, loud = estimated(tmp_path), estimated(tmp_path, left=7, sound={"keep": True})
    assert 6.2 / 60 / 1.5 < 3600 * (loud.cpu_hours - silent.cpu_hours) / loud.clips < 6.2 / 60 * 1.5
    assert 2 * 2e-3 / 60 / 1.5 < (loud.gigabytes - silent.gigabytes) / loud.clips < 2 * 2e-3 / 60 * 1.5


def test_requests_are_those_of_a_server_and_twice_as_many_with_a_cast(tmp_path: Path) -> None:
    server = {"captioner": "server"}
    alone, with_cast = estimated(tmp_path, captions=server), estimated(tmp_path, cast="cast", captions=server)
    assert estimated(tmp_path).requests == 0
    assert with_cast.requests == pytest.approx(2 * alone.requests, abs=1)
    assert 0.5 * alone.clips < alone.requests < alone.clips


def test_clips_with_stored_replies_are_asked_about_no_more(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 4, levels=[2] * 4)
    with CaptionServer(good_answer) as server:
        captions = stage_for(server.address, make_cast(tmp_path / "cast", "Ponyo"))
        captions.run_batch(folder, clip_ids(folder)[:3])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    def requests(*stages: Stage) -> int:
        config = checked({"captions": {"captioner": "server"}}, "test")
        request = BuildRequest(films=("film.mp4",), out=tmp_path, cast="cast", config=config)
        return estimate(plan_of(request, {folder.film_id: stages})).requests

    def screen(**settings: object) -> Screen:
        return Screen(SelectionSettings(near_duplicates=False, **settings), PUBLISHED_EDGES)

    assert requests(captions) == requests(screen(), captions) == 2, "both questions about one clip"
    assert requests(screen(min_light=100), captions) == 0, "no clip is left"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, "nothing is written"
    (folder.path / "replies" / f"{clip_ids(folder)[0]}.json").write_text("damaged")
    assert requests(captions) == round(4 * KEPT_SHARE * 2)


def test_finished_stages_cost_nothing_and_their_clips_are_counted(tmp_path: Path) -> None:
    all_left, two_left, none_left = (estimated(tmp_path, left) for left in (6, 2, 0))
    assert two_left.clips == 8
    assert two_left.cpu_hours < all_left.cpu_hours / 5
    assert none_left == Estimate(films=0, film_hours=0, clips=0, cpu_hours=0, gigabytes=0, requests=0)
