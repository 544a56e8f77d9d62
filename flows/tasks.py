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

from flows.progress import watcher
from pipeline.captions import WriteCaptions
from pipeline.endpoint import EndpointDownError
from pipeline.stage import Progress, Stage, perform
from pipeline.store import FilmFolder


@task(task_run_name="{subject}-{name}", cache_policy=NO_CACHE, persist_result=False)
def run_step(subject: str, name: str, work: Callable[[Progress], bool]) -> bool:
    """Run one step on a film or on the data set, watched; False if it was already up to date."""
    return _watched(subject, name, work)


def run_stage(stage: Stage, film: Path) -> bool:
    """Run one stage on the film folder `film` as a task."""
    return run_step(film.name, stage.name, lambda progress: perform(stage, FilmFolder(film), progress))


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

    def ask(progress: Progress) -> bool:
        stage.ask_batch(FilmFolder(film), clip_ids, progress)
        return True

    _watched(film.name, f"captions, batch {number + 1}", ask)


def _watched(subject: str, name: str, work: Callable[[Progress], bool]) -> bool:
    progress = watcher.get().begin(subject, name)
    outcome = "failed"
    try:
        changed = work(progress)
        outcome = "done" if changed else "unchanged"
    finally:
        watcher.get().end(subject, name, outcome)
    return changed
