"""Prefect tasks: retries of the caption service, and of nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.core.progress import Progress
from pipeline.core.records import RecordError
from pipeline.core.store import Dataset
from tests.support.media.painted_clips import make_cast, make_screened_film, stage_for
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect")]


def test_a_recovered_caption_service_is_asked_only_the_open_questions(tmp_path: Path) -> None:
    from prefect import flow

    from flows.tasks import FilmJob, run_batch, with_stage_options

    folder = make_screened_film(tmp_path, 6)
    with CaptionServer(good_answer) as server:
        cast = make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
        stage = stage_for(server.address, cast, concurrency=1)

        def down_after_four(request: Request) -> Answer:
            if len(server.requests) > 4:
                server.models_status = 503
                return Answer(status=503)
            return good_answer(request)

        def comes_back(task: object, run: object, state: object) -> None:
            if server.models_status == 503:
                server.models_status, server.answer = 200, good_answer

        server.answer = down_after_four
        patient = with_stage_options(run_batch, stage).with_options(retry_delay_seconds=0, on_running=[comes_back])

        @flow(persist_result=False)
        def asking() -> None:
            job = FilmJob(str(tmp_path), folder.film_id, is_here=True)
            patient(stage, job, "captions, batch 1", stage.pending(folder, current=False).ids)

        assert asking(return_state=True).is_completed()
        answered = [request for request in server.requests if request.kind in ("who", "what")]
        assert len(answered) - 12 in (1, 2), "only unanswered questions are repeated"
    assert stage.pending(folder, current=False).ids == ()


def test_any_other_failure_is_tried_once(tmp_path: Path) -> None:
    from prefect import flow

    from flows.tasks import run_publish_stage

    tries = []

    class Failing:
        name: ClassVar[str] = "stage"

        def run(self, dataset: Dataset, progress: Progress) -> bool:  # noqa: ARG002
            tries.append(1)
            raise RecordError("film", "cannot be used")

    @flow(persist_result=False)
    def failing() -> None:
        run_publish_stage(Failing(), Dataset(tmp_path))

    state = failing(return_state=True)
    assert state.is_failed()
    assert len(tries) == 1
