"""Prefect tasks: thin wrappers that run one stage, or one batch of what is pending, on one film.

Prefect's own caching is off: it does not notice a deleted file and forgets between runs, while `stage.judge` compares
fingerprints and files. Only what a stage says another try may mend is retried; every other failure would fail again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.tasks import exponential_backoff

from flows.artifacts import shown
from pipeline.core.progress import Progress
from pipeline.core.stage import Stage, make
from pipeline.core.store import Dataset, FilmFolder
from pipeline.plan.publish import PublishStage
from pipeline.plan.workspace import Workspace
from pipeline.remote.film_cache import drop_film, local_film

RETRIES = 3


@dataclass(frozen=True)
class FilmJob:
    """One film for a task, which may run on another machine: only the data set's place and the film's id travel."""

    out: str
    film_id: str
    is_here: bool
    """The task runs in the process that has fetched the film's folder and will send it."""

    @contextmanager
    def folder(self) -> Iterator[FilmFolder]:
        """The film's folder on the machine of the task; elsewhere it is fetched before and sent after the block."""
        workspace = Workspace(self.out)
        if self.is_here:
            yield workspace.dataset.folder(self.film_id)
            return
        with workspace.film(self.film_id) as folder:
            try:
                yield folder
            finally:
                drop_film(folder)  # the next stage may run on another machine


@task(task_run_name="{film.film_id}-{name}", cache_policy=NO_CACHE, persist_result=False)
def run_stage(stage: Stage, film: FilmJob, name: str) -> None:
    """Run one stage on a film, shown under a name; a film at an address is fetched if the stage reads it."""
    with film.folder() as folder, shown(film.film_id, name) as watch, _with_film(stage, folder, watch) as readable:
        make(stage, readable, watch)


def _with_film(stage: Stage, folder: FilmFolder, progress: Progress) -> AbstractContextManager[FilmFolder]:
    return local_film(folder, progress) if stage.resources.reads_film else nullcontext(folder)


@task(task_run_name="{film.film_id}-{name}", cache_policy=NO_CACHE, persist_result=False)
def run_batch(stage: Stage, film: FilmJob, name: str, batch: tuple[str, ...]) -> None:
    """Work off one batch of what is pending; what is done is kept, so a retry does only the rest."""
    with film.folder() as folder, shown(film.film_id, name) as watch:
        stage.run_batch(folder, batch, watch)


@task(task_run_name="{dataset.root.name}-{stage.name}", cache_policy=NO_CACHE, persist_result=False)
def run_publish_stage(stage: PublishStage, dataset: Dataset) -> bool:
    """Run one stage of publishing, shown; False if it was already up to date."""
    with shown(dataset.root.name, stage.name) as watch:
        watch.changed = stage.run(dataset, watch)
    return watch.changed


def as_stage_wants(task: Task[..., Any], stage: Stage) -> Task[..., Any]:
    """The task with the tags of a stage, retried after the failures that the stage names."""
    resources = stage.resources
    if not resources.retry_on:
        return task.with_options(tags=resources.tags)

    def may_pass(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
        return isinstance(state.result(raise_on_failure=False), resources.retry_on)

    return task.with_options(
        tags=resources.tags,
        retries=RETRIES,
        retry_delay_seconds=exponential_backoff(10),
        retry_jitter_factor=0.5,
        retry_condition_fn=may_pass,
    )
