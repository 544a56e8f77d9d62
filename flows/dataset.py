"""The two data flows: `onboard_film` takes one film through its stages, `build_dataset` does so for many and publishes.

    build_dataset(BuildRequest(films=(Path("film.mkv"),), out=Path("data")))

A film that fails stops at its stage and is named in the final state; the others go on, and what is whole is
published. A run in which anything failed ends as Failed: Prefect alone would call it Completed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from prefect import State, flow
from prefect.states import Completed, Failed

from flows.publish import publish_steps
from flows.request import BuildRequest
from flows.stages import choose_edges, make_plan, planned_stages
from flows.tasks import ask_captions, run_stage, run_step
from pipeline.captions import WriteCaptions
from pipeline.cast import load_cast
from pipeline.records import RecordError
from pipeline.store import Dataset, FilmFolder


@flow(name="onboard-film", flow_run_name="{film_id}", persist_result=False)
def onboard_film(film_id: str, request: BuildRequest) -> None:
    """Bring every stage of one planned film up to date; the unit that schedulers run and retry."""
    dataset = Dataset(request.out)
    edges, _ = choose_edges(request.config, dataset.record)
    folder = dataset.folder(film_id)
    for stage in planned_stages(request, load_cast(request.cast), edges):
        if isinstance(stage, WriteCaptions):
            ask_in_batches(stage, folder, request.config.captions.batch)
        run_stage(stage, folder)


def ask_in_batches(stage: WriteCaptions, folder: FilmFolder, size: int) -> None:
    """Ask the caption service what is missing, in tasks that can be retried; the replies are then to be collected."""
    waiting = stage.waiting(folder)
    for number, start in enumerate(range(0, len(waiting), size)):
        ask_captions(stage, folder.path, number, waiting[start : start + size])
    if waiting:
        folder.forget_stage(stage.name)


@flow(name="build-dataset", persist_result=False)
def build_dataset(request: BuildRequest) -> State[Any]:
    """Onboard every film, at most `run.films_at_once` together, then publish shards, card and report.

    The message of a failed run has a line for each failure: what failed, and why.
    """
    plan = make_plan(request)
    with ThreadPoolExecutor(max_workers=request.config.run.films_at_once) as pool:
        runs = [pool.submit(copy_context().run, _onboard, plan.dataset, film, request) for film in plan.films]
        failed = [run.result() for run in runs]
    failed += [f"{refusal.record_id}: {refusal.reason}" for refusal in plan.refused]
    if plan.publish:
        failed.append(_publish(plan.dataset, request))
    failures = [failure for failure in failed if failure]
    return Failed(message="\n".join(failures)) if failures else Completed(message="every film is up to date")


def _onboard(dataset: Dataset, film_id: str, request: BuildRequest) -> str | None:
    """Onboard one film; why it failed, noted in its folder too, or None."""
    folder = dataset.folder(film_id)
    folder.clear_failure()
    state: State[Any] = onboard_film(film_id, request, return_state=True)
    if state.is_completed():
        return None
    error = state.result(raise_on_failure=False)
    reason = error.reason if isinstance(error, RecordError) else f"{type(error).__name__}: {error}"
    folder.save_failure(RecordError(film_id, reason))
    return f"{folder.film.name}: {reason}"


def _publish(dataset: Dataset, request: BuildRequest) -> str | None:
    """Run the steps of publishing; why one failed, or None. What was published before stays until the step is done."""
    for name, work in publish_steps(dataset, request.config):
        state: State[Any] = run_step(dataset.root.name, name, work, return_state=True)
        if not state.is_completed():
            return f"{name}: {state.result(raise_on_failure=False)}"
    return None
