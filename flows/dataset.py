"""The two data flows: `onboard_film` takes one film through its stages, `build_dataset` does so for many and publishes.

    build_dataset(BuildRequest(films=("film.mkv",), out="data"))

A film that fails stops at its stage and is named in the final state; the others go on, and what is whole is
published. A run in which anything failed ends as Failed: Prefect alone would call it Completed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any

from prefect import State, flow
from prefect.states import Completed, Failed

from flows.artifacts import show_results
from flows.deploy import acquire_with_retry, from_anywhere
from flows.runners import connected, ray_runner, run_task
from flows.tasks import run_batch, run_publish_stage, run_stage
from flows.worker_runs import run_at_a_worker
from pipeline.core.atomic import held
from pipeline.core.config import RunSettings
from pipeline.core.errors import UserError
from pipeline.core.plain_text import is_text
from pipeline.core.records import RecordError
from pipeline.core.stage import Stage, judge
from pipeline.core.store import FilmFolder
from pipeline.plan.build_plan import Plan, make_plan
from pipeline.plan.film_stages import choose_edges, planned_stages
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.remote.film_cache import drop_film
from pipeline.remote.objects import RemoteError

ONBOARD, BUILD = "onboard-film", "build-dataset"


@flow(name=BUILD, persist_result=False)
def build_dataset(request: BuildRequest) -> State[Any]:
    """Onboard every film, at most `run.films_at_once` together, then publish shards, card and report.

    The message of a failed run has a line for each failure: what failed, and why.
    """
    workspace = Workspace(request.out)
    with acquire_with_retry(lambda: workspace.locked("animegamer build")):
        return work_through(make_plan(request))


def run_plan(plan: Plan) -> State[Any]:
    """Run a plan that is made already, in a workspace that is locked, as a run of the flow `build_dataset`."""

    @flow(name=BUILD, persist_result=False)
    def planned(request: BuildRequest) -> State[Any]:  # noqa: ARG001 - the server shows it as the run's parameter
        return work_through(plan)

    # the server stores parameters as UTF-8; a name that is not was refused by the plan
    request = plan.request.model_copy(update={"films": tuple(filter(is_text, plan.request.films))})
    state: State[Any] = planned(request, return_state=True)
    return state


def work_through(plan: Plan) -> State[Any]:
    """Onboard the films of a plan that have something to do, then publish."""
    with connected(plan.config.run):
        failures = [*onboard_films(plan), *plan.refusals]
        failures += publish(plan)
        show_results(plan, failures)
    return Failed(message="\n".join(failures)) if failures else Completed(message="every film is up to date")


def onboard_films(plan: Plan) -> list[str]:
    """Onboard the unfinished films, some at a time; a line for each that failed."""
    pool = ThreadPoolExecutor(max_workers=plan.config.run.films_at_once)
    try:
        runs = [pool.submit(copy_context().run, _onboard, film_id, plan) for film_id in plan.unfinished]
        failures = [failure for run in runs if (failure := run.result())]
    finally:  # where the build is stopped, no film more is begun
        pool.shutdown(cancel_futures=True)
    if plan.config.run.runner == "workers":
        plan.workspace.fetch()  # results of other machines
    return failures


def _onboard(film_id: str, plan: Plan) -> str | None:
    """Onboard one film where the settings say; why it failed, or None."""
    state = _run_at_a_worker(film_id, plan) if plan.config.run.runner == "workers" else _run_here(film_id, plan)
    drop_film(plan.dataset.folder(film_id))  # the plan's own copy, where another machine did the work
    if state.is_completed():
        return None
    message = (state.message or "it ended without a message").removeprefix("Flow run encountered an exception: ")
    try:
        with plan.workspace.film(film_id) as folder:
            if state.is_crashed() or state.is_cancelled():
                folder.save_failure(RecordError(film_id, message))  # its process could not do so
            failure = folder.failure
    except RemoteError as error:
        return f"{film_id}: {message}; {error}"
    return f"{folder.film.name}: {failure.reason if failure else message}"


def _run_at_a_worker(film_id: str, plan: Plan) -> State[Any]:
    """Have a worker run `onboard_film`; the request goes without its films, or the server would store all with each."""
    return run_at_a_worker(film_id, from_anywhere(plan.request.model_copy(update={"films": ()})))


def _run_here(film_id: str, plan: Plan) -> State[Any]:
    """Onboard the film by the plan's own stages, as a run of the flow `onboard_film`."""
    settings = plan.config.run

    @flow(name=ONBOARD, flow_run_name="{film_id}", persist_result=False)
    def planned(film_id: str) -> None:
        bring_up_to_date(plan.workspace, film_id, plan.unfinished[film_id], settings)

    run = planned.with_options(task_runner=ray_runner(settings)) if settings.runner == "ray" else planned
    state: State[Any] = run(film_id, return_state=True)
    return state


@flow(name=ONBOARD, flow_run_name="{film_id}", persist_result=False)
def onboard_film(film_id: str, request: BuildRequest) -> None:
    """Bring every stage of one planned film up to date; the unit that schedulers run and retry."""
    workspace = Workspace(request.out)
    workspace.fetch("dataset.json")
    edges, _ = choose_edges(request.config, workspace.dataset.record)
    bring_up_to_date(workspace, film_id, planned_stages(request, edges), request.config.run)


def bring_up_to_date(workspace: Workspace, film_id: str, stages: Sequence[Stage], settings: RunSettings) -> None:
    """Run each stage that is stale or has something pending, in order, as tasks."""
    path = workspace.dataset.folder(film_id).path
    with acquire_with_retry(lambda: held(path, f"onboard-film {film_id}")), workspace.film(film_id) as folder:
        folder.sweep()
        try:
            with _failure_noted(folder):
                for stage in stages:
                    _bring_stage_up_to_date(stage, folder, workspace, settings)
        finally:
            drop_film(folder)


def _bring_stage_up_to_date(stage: Stage, folder: FilmFolder, workspace: Workspace, settings: RunSettings) -> None:
    """Work off what is pending, then run the stage if it is stale; its task says why a finished stage runs again."""
    film_id, found = folder.film_id, judge(stage, folder)
    stale, pending = found.stale, found.pending
    for number, batch in enumerate(pending.batches, start=1):
        run_task(run_batch, stage, workspace, film_id, settings, f"{stage.name}, batch {number}", batch)
    if pending.batches and not stale:
        pending = stage.pending(folder, current=True)
    if not stale and not pending.uncollected:
        return
    again = stale if folder.stage_record(stage.name) else None
    name = f"{stage.name} again ({again or pending.reason})" if again or not stale else stage.name
    run_task(run_stage, stage, workspace, film_id, settings, name)


@contextmanager
def _failure_noted(folder: FilmFolder) -> Iterator[None]:
    """Leave in the film's folder why it failed, for the report, `animegamer status` and the next run."""
    folder.clear_failure()
    try:
        yield
    except Exception as error:  # a bug too is why the film failed; it is noted and goes on up
        with suppress(UserError):
            folder.save_failure(_failure(folder.film_id, error))
        raise


def _failure(film_id: str, error: Exception) -> RecordError:
    """The error as a failure of the film: with its class name where the message is not meant for people."""
    if isinstance(error, RecordError):
        return error
    return RecordError(film_id, str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")


def publish(plan: Plan) -> list[str]:
    """Run the stages of publishing, up to the first that fails, and send each; a line for it.

    What was published before stays until the stage is done.
    """
    for stage in plan.publishing:
        state: State[Any] = run_publish_stage(stage, plan.dataset, return_state=True)
        plan.workspace.send()
        if not state.is_completed():
            return [f"{stage.name}: {state.result(raise_on_failure=False)}"]
    return []
