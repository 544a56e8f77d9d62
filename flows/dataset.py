"""Prefect flows of the data half: `onboard_film` for the stages of one film, `build_dataset` for films to shards.

    build_dataset(BuildRequest(films=("film.mkv",), out="data"))

`animegamer build` plans first, and runs the plan under the same flow name only if there is work (`run_plan`).

A film that fails stops at its stage, and the final state lists it. The other films continue, and complete films are
published. A run in which anything failed ends as Failed; by default Prefect would report it as Completed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import copy_context
from itertools import chain
from typing import Any

from prefect import State, flow
from prefect.runtime import deployment
from prefect.states import Completed, Failed

from flows.artifacts import show_results
from flows.deployments import run_at_a_worker
from flows.engine import connected, ray_runner, run
from flows.tasks import run_batch, run_publish_stage, run_stage, run_task
from pipeline.captions.endpoint import counted
from pipeline.core.atomic import HeldError, held
from pipeline.core.config import RunSettings
from pipeline.core.errors import UserError
from pipeline.core.plain_text import is_text
from pipeline.core.records import RecordError
from pipeline.core.stage import Stage, staleness_of
from pipeline.core.store import FilmFolder
from pipeline.plan.build_plan import Plan, make_plan, unfinished_of
from pipeline.plan.film_stages import choose_edges, planned_stages
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.seasons import MEASURED, compare_episodes, series_of
from pipeline.plan.workspace import Workspace, film_part
from pipeline.remote.film_cache import delete_local_film
from pipeline.stages.selection import Screen

ONBOARD, BUILD = "onboard-film", "build-dataset"
LOCK_WAIT_SECONDS = 120
"""Longest wait of a worker's run for a lock: an NFS server releases the locks of a dead machine after 90 seconds."""


@flow(name=BUILD, persist_result=False)
def build_dataset(request: BuildRequest) -> State[Any]:
    """Onboard every film, at most `run.films_at_once` together, then publish shards, card and report.

    The message of a failed run has one line per failure: the part that failed, and the reason.
    """
    workspace = Workspace(request.out)
    with acquire_with_retry(lambda: workspace.locked("animegamer build")):
        return onboard_and_publish(make_plan(request, workspace))


def run_plan(plan: Plan) -> State[Any]:
    """Run an existing plan in a locked workspace, under the name of the flow `build_dataset`."""

    @flow(name=BUILD, persist_result=False)
    def planned(request: BuildRequest) -> State[Any]:  # noqa: ARG001 - the server shows it as the run's parameter
        return onboard_and_publish(plan)

    # the server stores parameters as UTF-8; the plan has rejected names that are not
    request = plan.request.model_copy(update={"films": tuple(filter(is_text, plan.request.films))})
    return run(planned, request)


def onboard_and_publish(plan: Plan) -> State[Any]:
    """Onboard the unfinished films of a plan, then publish."""
    with connected(plan.config.run):
        failures = [*onboard_films(plan), *plan.refusals]
        failures += publish(plan)
        show_results(plan, failures)
    return Failed(message="\n".join(failures)) if failures else Completed(message="every film is up to date")


def onboard_films(plan: Plan) -> list[str]:
    """Onboard the unfinished films, at most `run.films_at_once` together; return one line per failure.

    The episodes of a series are captioned only once all of them are measured and compared: a captioner would be asked
    about the same opening again and again. Other films do not wait.
    """
    with counted():
        waiting = _films_that_wait(plan)
        until = plan.stages if not waiting else plan.stages[: [stage.name for stage in plan.stages].index(Screen.name)]
        now = {film_id: until if film_id in waiting else left for film_id, left in plan.unfinished.items()}
        failures = _onboard(plan, now, waiting)
        if waiting:
            failures |= _compare(plan)
            left = unfinished_of([plan.dataset.folder(film_id) for film_id in waiting - failures.keys()], plan.stages)
            failures |= _onboard(plan, {film_id: left[film_id] for film_id in plan.films if film_id in left})
    return list(failures.values())


def _films_that_wait(plan: Plan) -> frozenset[str]:
    """Ids of the films of this build in a series of which an episode is to be measured."""
    if Screen.name not in (stage.name for stage in plan.stages):
        return frozenset()
    measured = {film_id for film_id, left in plan.unfinished.items() if left and left[0].name in MEASURED}
    series = series_of(plan.dataset, [entry.film_id for entry in plan.record.films])
    ids = [{folder.film_id for folder in folders} for folders in series]
    return frozenset(film_id for episodes in ids if episodes & measured for film_id in episodes & set(plan.films))


def _compare(plan: Plan) -> dict[str, str]:
    """Compare the episodes of every series; return a failure by the name of the part, if there is one."""
    try:
        for film_id in compare_episodes(plan.dataset, [entry.film_id for entry in plan.record.films]):
            plan.workspace.send(film_part(film_id))
    except UserError as error:
        return {"episodes": f"episodes: {error}"}
    return {}


def _onboard(plan: Plan, films: Mapping[str, Sequence[Stage]], waiting: Collection[str] = ()) -> dict[str, str]:
    """Run stages of films; return the failures by film. Those that wait stop before they are screened."""
    pool = ThreadPoolExecutor(max_workers=plan.config.run.films_at_once)
    try:
        runs = {
            film_id: pool.submit(copy_context().run, _run_film, film_id, plan, stages, film_id in waiting)
            for film_id, stages in films.items()
        }
        failures = {film_id: failure for film_id, run in runs.items() if (failure := run.result())}
    finally:  # a stopped build starts no further film
        pool.shutdown(cancel_futures=True)
    if plan.config.run.runner == "workers":
        try:
            plan.workspace.fetch()  # results of other machines
        except UserError as error:
            failures["fetch"] = str(error)
    return failures


def _run_film(film_id: str, plan: Plan, stages: Sequence[Stage], waits: bool) -> str | None:
    """Onboard one film with the configured runner; return the reason of its failure, or None."""
    if plan.config.run.runner == "workers":  # the server would store the films with every run
        until = Until.motion if waits else plan.request.until
        state = run_at_a_worker(film_id, plan.request.model_copy(update={"films": (), "until": until}))
    else:
        settings = plan.config.run

        @flow(name=ONBOARD, flow_run_name="{film_id}", persist_result=False)
        def planned(film_id: str) -> None:
            run_stages(plan.workspace, film_id, lambda: stages, settings)

        on_ray = settings.runner == "ray"
        state = run(planned.with_options(task_runner=ray_runner(settings)) if on_ray else planned, film_id)
    delete_local_film(plan.dataset.folder(film_id))  # the plan's own copy, if another machine did the work
    if state.is_completed():
        return None
    message = (state.message or "ended without a message").removeprefix("Flow run encountered an exception: ")
    try:
        with plan.workspace.film(film_id) as folder:
            if state.is_crashed() or state.is_cancelled() or folder.failure is None:
                folder.save_failure(RecordError(film_id, message))  # the run ended without saving its failure
            failure = folder.failure
    except UserError as error:
        return f"{film_id}: {message}; {error}"
    return f"{folder.film.name}: {failure.reason if failure else message}"


@flow(name=ONBOARD, flow_run_name="{film_id}", persist_result=False)
def onboard_film(film_id: str, request: BuildRequest) -> None:
    """Bring every stage of one planned film up to date: the unit of work of a worker."""
    workspace = Workspace(request.out)
    workspace.fetch("dataset.json")
    workspace.fetch("networks.json")
    edges, _ = choose_edges(request.config, workspace.dataset.record)
    with counted():  # counts the batches of this film only: other films are separate runs
        run_stages(workspace, film_id, lambda: planned_stages(request, edges), request.config.run)


def run_stages(
    workspace: Workspace, film_id: str, stages: Callable[[], Sequence[Stage]], settings: RunSettings
) -> None:
    """Run each stage that is stale or has pending work, in order, as tasks.

    Args:
        stages: returns the stages; called here so that its errors, such as a missing cast folder, are failures of the
            film.
    """
    path = workspace.dataset.folder(film_id).path
    with acquire_with_retry(lambda: held(path, f"onboard-film {film_id}")), workspace.film(film_id) as folder:
        folder.sweep()
        try:
            with _failure_saved(folder):
                for task, stage, name, *batch in chain.from_iterable(_work_left(stage, folder) for stage in stages()):
                    run_task(task, stage, workspace, film_id, settings, name, *batch)
        finally:
            delete_local_film(folder)


def _work_left(stage: Stage, folder: FilmFolder) -> Iterator[tuple[Any, ...]]:
    """Yield the tasks of a stage: its pending batches, and then the stage itself if it is stale.

    Each item has the task, the stage, the name (with the reason of a rerun) and the batch, if any. The caller runs an
    item before it requests the next one.
    """
    found = staleness_of(stage, folder)  # now: a stage before it may have changed its tables
    stale_reason, pending = found.stale_reason, found.pending
    for number, batch in enumerate(pending.batches, start=1):
        yield run_batch, stage, f"{stage.name}, batch {number}", batch
    if pending.batches and not stale_reason:  # the batches may have left results that the stage has yet to collect
        pending = stage.pending(folder, current=True)
    if stale_reason or pending.uncollected:
        is_first_run = stale_reason and not folder.stage_record(stage.name)
        name = stage.name if is_first_run else f"{stage.name} again ({stale_reason or pending.reason})"
        yield run_stage, stage, name


@contextmanager
def acquire_with_retry(take: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Hold the lock that `take` takes; a run started by a worker retries if another process holds it.

    The holder may be the process of an earlier run, which can outlive its worker for a moment. Any other run gets the
    error at once.

    Raises:
        HeldError: the lock is still held.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(take())
                break
            except HeldError:
                if time.monotonic() > deadline or deployment.id is None:
                    raise
            time.sleep(1)
        yield


@contextmanager
def _failure_saved(folder: FilmFolder) -> Iterator[None]:
    """Save the failure of the block in the film's folder, for the report, `animegamer status` and the next run."""
    folder.clear_failure()
    try:
        yield
    except Exception as error:  # bugs too are saved as the reason, and raised again
        with suppress(UserError):
            folder.save_failure(_failure(folder.film_id, error))
        raise


def _failure(film_id: str, error: Exception) -> RecordError:
    """Error as a failure of the film; with its class name unless the message was written for users."""
    if isinstance(error, RecordError):
        return error
    return RecordError(film_id, str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")


def publish(plan: Plan) -> list[str]:
    """Run the publishing stages up to the first failure, and send the result of each; return a line for the failure.

    The previous result of a stage stays published until the stage is done.
    """
    for stage in plan.publishing:
        state = run(run_publish_stage, stage, plan.dataset)
        try:
            plan.workspace.send()
        except UserError as error:
            return [f"{stage.name}: {error}"]
        if not state.is_completed():
            return [f"{stage.name}: {state.result(raise_on_failure=False)}"]
    return []
