"""Prefect tasks: thin wrappers that run one stage on one part. Everything they do is done by plain functions.

Prefect's own caching is off: it does not notice a deleted file and forgets between runs, while `stage.perform`
compares fingerprints and files. Only the caption service is retried; every other failure would fail again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.tasks import exponential_backoff

from flows.progress import watched
from pipeline.captions import WriteCaptions
from pipeline.endpoint import EndpointDownError
from pipeline.stage import Progress, Stage, perform, why_stale
from pipeline.store import FilmFolder


@task(task_run_name="{subject}-{name}", cache_policy=NO_CACHE, persist_result=False)
def run_step(subject: str, name: str, work: Callable[[Progress], bool]) -> bool:
    """Run one step on a film or on the data set, watched; False if it was already up to date."""
    with watched(subject, name) as watch:
        watch.changed = work(watch)
    return watch.changed


def run_stage(stage: Stage, folder: FilmFolder) -> None:
    """Run one stage on a film as a task, telling why if it was done before and has to be done again."""
    again = folder.stage_record(stage.name) is not None and why_stale(stage, folder)
    name = f"{stage.name} again ({again})" if again else stage.name
    run_step(folder.film_id, name, lambda progress: perform(stage, folder, progress))


def _service_failed(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
    return isinstance(state.result(raise_on_failure=False), EndpointDownError)


@task(
    task_run_name="{film.name}-captions-{number:03d}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=3,
    retry_delay_seconds=exponential_backoff(10),
    retry_jitter_factor=0.5,
    retry_condition_fn=_service_failed,
)
def ask_captions(stage: WriteCaptions, film: Path, number: int, clip_ids: list[str]) -> None:
    """Ask the caption service about one batch of clips; replies are kept per clip, so a retry asks only the rest."""
    with watched(film.name, f"captions, batch {number + 1}") as watch:
        stage.ask_batch(FilmFolder(film), clip_ids, watch)
