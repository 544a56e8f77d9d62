"""The two data flows: `onboard_film` takes one film through its stages, `build_dataset` does so for many and publishes.

    build_dataset(BuildRequest(films=("film.mkv",), out="data"))

A film that fails stops at its stage and is named in the final state; the others go on, and what is whole is
published. A run in which anything failed ends as Failed: Prefect alone would call it Completed.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any

from prefect import State, flow
from prefect.states import Completed, Failed

from flows.artifacts import show_results
from flows.deploy import from_anywhere, patiently
from flows.plan.build_plan import Plan, alone, choose_edges, make_plan, planned_stages
from flows.plan.publish import publish_steps
from flows.plan.request import BuildRequest
from flows.plan.workspace import Place, film_at
from flows.runners import GPU, connected, needs_gpu, ray_runner, run_task
from flows.tasks import ask_captions, run_stage, run_step
from flows.worker_runs import run_at_a_worker
from pipeline.captions.server_captioner import OpenEnds
from pipeline.captions.stage import WriteCaptions
from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from pipeline.core.records import RecordError
from pipeline.core.stage import Stage, why_stale
from pipeline.remote.film_cache import drop_film
from pipeline.remote.objects import RemoteError


@flow(name="onboard-film", flow_run_name="{film_id}", persist_result=False)
def onboard_film(film_id: str, request: BuildRequest) -> None:
    """Bring every stage of one planned film up to date; the unit that schedulers run and retry."""
    place = Place(request.out)
    place.fetch("dataset.json")
    edges, _ = choose_edges(request.config, place.dataset.record)
    folder = place.dataset.folder(film_id)
    with patiently(lambda: held(folder.path, f"onboard-film {film_id}")), _failure_noted(request.out, film_id):
        folder.sweep()
        try:
            for stage in planned_stages(request, edges):
                if isinstance(stage, WriteCaptions):
                    ask_in_batches(stage, film_id, request)
                bring_up_to_date(stage, film_id, request)
        finally:
            drop_film(folder)


@contextmanager
def _failure_noted(out: str, film_id: str) -> Iterator[None]:
    """Leave in the film's folder why it failed, for the report, `animegamer status` and the next run."""
    with film_at(out, film_id) as folder:
        folder.clear_failure()
    try:
        yield
    except Exception as error:  # a bug too is why the film failed; it is noted and goes on up
        with suppress(UserError), film_at(out, film_id) as folder:
            folder.save_failure(_failure(film_id, error))
        raise


def _failure(film_id: str, error: Exception) -> RecordError:
    """Why the film failed, in words: the name of an error is told where its message is not meant for people."""
    if isinstance(error, RecordError):
        return error
    told = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return RecordError(film_id, told)


def ask_in_batches(stage: WriteCaptions, film_id: str, request: BuildRequest) -> None:
    """Ask the caption service what is missing, in tasks that can be retried; the replies are then to be collected."""
    settings, size = request.config.run, request.config.captions.batch
    with film_at(request.out, film_id) as folder:
        open_ends = stage.open_ends(folder)
    if open_ends == OpenEnds():
        return
    waiting = open_ends.waiting
    for number, start in enumerate(range(0, len(waiting), size)):
        run_task(ask_captions, stage, settings, request.out, film_id, number, list(waiting[start : start + size]))
    with film_at(request.out, film_id) as folder:
        if stage.open_ends(folder).news:
            folder.forget_stage(stage.name)


def bring_up_to_date(stage: Stage, film_id: str, request: BuildRequest) -> None:
    """Run one stage on a film as a task, telling why if it was done before and has to be done again."""
    with film_at(request.out, film_id) as folder:
        again = folder.stage_record(stage.name) is not None and why_stale(stage, folder)
    name = f"{stage.name} again ({again})" if again else stage.name
    task = run_stage.with_options(tags=[GPU]) if needs_gpu(stage) else run_stage
    keeps_film = request.config.run.runner != "ray"  # there the next stage may run on another machine
    run_task(task, stage, request.config.run, request.out, film_id, name, keeps_film)


@flow(name="build-dataset", persist_result=False)
def build_dataset(request: BuildRequest) -> State[Any]:
    """Onboard every film, at most `run.films_at_once` together, then publish shards, card and report.

    The message of a failed run has a line for each failure: what failed, and why.
    """
    with patiently(lambda: alone(request)), connected(request.config.run):
        plan = make_plan(request)
        failed = _onboard_all(plan, request)
        plan.place.fetch()  # what other machines did
        failed += [f"{refusal.record_id}: {refusal.reason}" for refusal in plan.refused]
        if plan.publish:
            failed.append(_publish(plan))
        failures = [failure for failure in failed if failure]
        show_results(plan, request, failures)
    return Failed(message="\n".join(failures)) if failures else Completed(message="every film is up to date")


def _onboard_all(plan: Plan, request: BuildRequest) -> list[str | None]:
    pool = ThreadPoolExecutor(max_workers=request.config.run.films_at_once)
    try:
        runs = [pool.submit(copy_context().run, _onboard, film, plan, request) for film in plan.films]
        return [run.result() for run in runs]
    finally:  # where the build is stopped, no film more is begun
        pool.shutdown(cancel_futures=True)


def _onboard(film_id: str, plan: Plan, request: BuildRequest) -> str | None:
    """Onboard one film; why it failed, or None."""
    state = _run_film(film_id, request)
    drop_film(plan.dataset.folder(film_id))  # the plan's own copy, where another machine did the work
    if state.is_completed():
        return None
    told = (state.message or "it ended without a word").removeprefix("Flow run encountered an exception: ")
    try:
        with film_at(request.out, film_id) as folder:
            if state.is_crashed() or state.is_cancelled():
                folder.save_failure(RecordError(film_id, told))  # its process was in no state to say so
            failure = folder.failure
    except RemoteError as error:
        return f"{film_id}: {told}; {error}"
    return f"{folder.film.name}: {failure.reason if failure else told}"


def _run_film(film_id: str, request: BuildRequest) -> State[Any]:
    """Run the flow of one film where the settings say, to its final state."""
    settings = request.config.run
    request = request.model_copy(update={"films": ()})  # or the server would keep every name with every film
    request = request if settings.runner == "threads" else from_anywhere(request)
    if settings.runner == "workers":
        return run_at_a_worker(film_id, request)
    flow = onboard_film.with_options(task_runner=ray_runner(settings)) if settings.runner == "ray" else onboard_film
    state: State[Any] = flow(film_id, request, return_state=True)
    return state


def _publish(plan: Plan) -> str | None:
    """Run the steps of publishing; why one failed, or None. What was published before stays until the step is done."""
    for name, work in publish_steps(plan.dataset, plan.config):
        state: State[Any] = run_step(plan.dataset.root.name, name, work, return_state=True)
        plan.place.send()
        if not state.is_completed():
            return f"{name}: {state.result(raise_on_failure=False)}"
    return None
