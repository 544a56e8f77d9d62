"""Prefect tasks: thin wrappers that run one stage, or one batch of pending work, on one film.

Prefect's result cache is off: it does not notice deleted files and is lost between runs, while `staleness_of` compares
fingerprints and files. Only the errors in a stage's `retry_on` are retried; any other would occur again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.tasks import exponential_backoff

from flows.artifacts import shown
from flows.engine import run
from pipeline.core.config import RunSettings
from pipeline.core.stage import Stage, make
from pipeline.core.store import Dataset, FilmFolder
from pipeline.plan.publish import PublishStage
from pipeline.plan.workspace import Workspace, film_part
from pipeline.remote.film_cache import delete_local_film, local_film

RETRIES = 3


@dataclass(frozen=True)
class FilmJob:
    """Argument of a task, which may run on another machine: the path or address of the dataset and the film's id."""

    out: str
    film_id: str
    is_here: bool
    """True if the task runs in the process of the build, which fetches and sends the folder itself."""

    @contextmanager
    def folder(self) -> Iterator[FilmFolder]:
        """Open the film's folder on the task's machine; in another process, fetch it before and send it after."""
        workspace = Workspace(self.out)
        if self.is_here:
            yield workspace.dataset.folder(self.film_id)
            return
        with workspace.film(self.film_id) as folder:
            try:
                yield folder
            finally:
                delete_local_film(folder)  # the next stage may run on another machine


def run_task(
    task: Task[..., Any], stage: Stage, workspace: Workspace, film_id: str, settings: RunSettings, *arguments: object
) -> None:
    """Run a task of a stage on a film with the configured runner, and wait; errors of the task are raised here."""
    task = with_stage_options(task, stage)
    if settings.runner != "ray":
        state = run(task, stage, FilmJob(workspace.name, film_id, is_here=True), *arguments)
        if not state.is_completed():
            state.result()  # raises its error
        workspace.send(film_part(film_id))  # now: if this machine dies later, the result is not lost
        return
    from prefect_ray.context import remote_options

    workspace.send(film_part(film_id))
    with remote_options(num_cpus=stage.resources.cpus, num_gpus=settings.ray_gpus if stage.resources.gpu else 0):
        task.submit(stage, FilmJob(workspace.name, film_id, is_here=False), *arguments).result()
    workspace.fetch(film_part(film_id))


@task(task_run_name="{film.film_id}-{name}", cache_policy=NO_CACHE, persist_result=False)
def run_stage(stage: Stage, film: FilmJob, name: str) -> None:
    """Run one stage on a film, with progress under `name`; a film at an address is fetched if the stage reads it."""
    with film.folder() as folder, shown(film.film_id, name) as watch:
        make(stage, folder, watch, partial(local_film, progress=watch) if stage.resources.reads_film else nullcontext)


@task(task_run_name="{film.film_id}-{name}", cache_policy=NO_CACHE, persist_result=False)
def run_batch(stage: Stage, film: FilmJob, name: str, batch: tuple[str, ...]) -> None:
    """Run one batch of a stage's pending work; finished items are kept, so a retry does only the rest."""
    with film.folder() as folder, shown(film.film_id, name) as watch:
        stage.run_batch(folder, batch, watch)


@task(task_run_name="{dataset.root.name}-{stage.name}", cache_policy=NO_CACHE, persist_result=False)
def run_publish_stage(stage: PublishStage, dataset: Dataset) -> bool:
    """Run one publishing stage with progress; return False if it was already up to date."""
    with shown(dataset.root.name, stage.name) as watch:
        watch.changed = stage.run(dataset, watch)
    return watch.changed


def with_stage_options(task: Task[..., Any], stage: Stage) -> Task[..., Any]:
    """Return the task with the tags of a stage, retried on the errors in its `retry_on`."""
    resources = stage.resources
    if not resources.retry_on:
        return task.with_options(tags=resources.tags)

    def is_retryable(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
        return isinstance(state.result(raise_on_failure=False), resources.retry_on)

    return task.with_options(
        tags=resources.tags,
        retries=RETRIES,
        retry_delay_seconds=exponential_backoff(10),
        retry_jitter_factor=0.5,
        retry_condition_fn=is_retryable,
    )
