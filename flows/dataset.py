"""The two data flows: `onboard_film` takes one film through its stages, `build_dataset` does so for many and publishes.

    build_dataset(BuildRequest(films=(Path("film.mkv"),), out=Path("data")))

A film that fails stops at its stage and is named in the final state; the others go on, and what is whole is
published. A run in which anything failed ends as Failed: Prefect alone would call it Completed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

from prefect import State, flow
from prefect.states import Completed, Failed

from flows.publish import publish_steps
from flows.request import BuildRequest
from flows.stages import make_plan
from flows.tasks import ask_captions, run_stage, run_step
from pipeline.captions import WriteCaptions
from pipeline.endpoint import EndpointError
from pipeline.records import RecordError
from pipeline.store import FilmFolder


@flow(name="onboard-film", flow_run_name="{film.name}", persist_result=False)
def onboard_film(film: Path, request: BuildRequest) -> None:
    """Bring every stage of one of the request's films up to date; the unit that schedulers run and retry."""
    plan = make_plan(request)
    folder = plan.dataset.folder(plan.films[film.resolve()])
    folder.clear_failure()
    try:
        for stage in plan.stages:
            if isinstance(stage, WriteCaptions):
                ask_in_batches(stage, folder, request.config.captions.batch)
            run_stage(stage, folder.path)
    except (RecordError, EndpointError) as error:
        folder.save_failure(RecordError(folder.film_id, str(error)))
        raise


def ask_in_batches(stage: WriteCaptions, folder: FilmFolder, size: int) -> None:
    """The only stage that others can hold up, so it is retried in small parts; new replies are to be collected."""
    waiting = stage.waiting(folder)
    for number, start in enumerate(range(0, len(waiting), size)):
        ask_captions(stage, folder.path, number, waiting[start : start + size])
    if waiting:
        folder.forget_stage(stage.name)


@flow(name="build-dataset", persist_result=False)
def build_dataset(request: BuildRequest) -> State[Any]:
    """Onboard every film, at most `run.films_at_once` together, then publish shards, card and report."""
    plan = make_plan(request)
    with ThreadPoolExecutor(max_workers=request.config.run.films_at_once) as pool:
        runs = {film: pool.submit(copy_context().run, _onboard, film, request) for film in plan.films}
        states = {film: run.result() for film, run in runs.items()}
    failed = [f"{refusal.record_id}: {refusal.reason}" for refusal in plan.refused]
    failed += [f"{film.name}: {state.message}" for film, state in states.items() if not state.is_completed()]
    if plan.publish:
        for name, work in publish_steps(plan.dataset, request.config):
            run_step(plan.dataset.root.name, name, work)
    if failed:
        return Failed(message=f"{len(failed)} of {len(request.films)} films failed: " + "; ".join(failed))
    return Completed(message=f"{len(plan.films)} films are up to date")


def _onboard(film: Path, request: BuildRequest) -> State[Any]:
    state: State[Any] = onboard_film(film, request, return_state=True)
    return state
