"""Builds of a series: captions start once its episodes are compared, and nobody pays twice for an opening."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from examples.world.writer import write_film
from flows.dataset import build_dataset
from flows.engine import run
from pipeline.core.config import checked
from pipeline.core.records import Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from tests.support.datasets.built_dataset import SMALL
from tests.support.media.painted_seasons import OPENING, STORY, painted, painted_season
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_what


@pytest.mark.slow
def test_an_opening_is_found_before_any_caption_and_decided_anew_without_its_episode(tmp_path: Path) -> None:
    films = painted_season(tmp_path / "films", episodes=2)
    alone = write_film(tmp_path / "films" / "Ponyo.mkv", painted(range(900, 902)), fps=24)
    cut_at_first_question: list[int] = []

    def answer(request: Request) -> Answer:
        folders = Dataset(tmp_path / "data").folders()
        cut_at_first_question.append(sum(folder.stage_record("looks") is not None for folder in folders))
        return Answer(good_what(0, request.found))

    def build(*paths: Path) -> dict[str, list[tuple[str, ...]]]:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model"}
        config = checked({**SMALL, "captions": captions, "selection": {"logo": "flag"}}, "test")
        request = BuildRequest(films=paths, out=tmp_path / "data", config=config)
        with temporary_settings(restore_defaults={PREFECT_API_URL}):
            state = run(build_dataset, request)
        assert state.is_completed(), state.message
        assert make_plan(request, Workspace(request.out)).unfinished == {}
        return {
            folder.film.name: [row.reasons for row in folder.read("verdicts", Verdict)]
            for folder in Dataset(tmp_path / "data").folders()
        }

    with CaptionServer(answer) as server:
        verdicts = build(*films, alone)
        for film in films:
            assert verdicts[film.name] == [("opening",)] * OPENING + [()] * STORY
        asked = len(server.requests)
        assert asked == 2 * STORY + 2, "one question about each clip of the stories and of the other film"
        assert cut_at_first_question[0] == 3
        assert all(folder.film.repeats for folder in Dataset(tmp_path / "data").folders() if folder.film.series)
        # removed by hand: the opening is no repeat without its copy
        dataset = Dataset(tmp_path / "data")
        gone = next(entry for entry in dataset.record.films if entry.name == films[1].name)
        shutil.rmtree(dataset.folder(gone.film_id).path)
        left = tuple(entry for entry in dataset.record.films if entry != gone)
        dataset.save(dataset.record.model_copy(update={"films": left}))
        assert build(films[0], alone)[films[0].name] == [()] * (OPENING + STORY)
        assert len(server.requests) == asked + OPENING
        first = dataset.folder(next(entry.film_id for entry in left if entry.name == films[0].name))
        assert first.film.repeats == ()
        assert len(first.read("clips", Clip)) == OPENING + STORY
