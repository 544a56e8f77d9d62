"""Prefect tasks: thin wrappers that run one stage on one part. Everything they do is done by plain functions.

Prefect's own caching is off: it does not notice a deleted file and forgets between runs, while `stage.perform`
compares fingerprints and files. Only the caption service is retried; every other failure would fail again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.tasks import exponential_backoff

from flows.artifacts import shown
from flows.plan.workspace import film_at
from flows.runners import CAPTIONS
from pipeline.captions.chat_client import EndpointDownError
from pipeline.captions.stage import WriteCaptions
from pipeline.core.progress import Progress
from pipeline.core.stage import Stage, perform
from pipeline.remote.film_cache import drop_film


@task(task_run_name="{subject}-{name}", cache_policy=NO_CACHE, persist_result=False)
def run_step(subject: str, name: str, work: Callable[[Progress], bool]) -> bool:
    """Run one step on the data set, shown; False if it was already up to date."""
    with shown(subject, name) as watch:
        watch.changed = work(watch)
    return watch.changed


@task(task_run_name="{film_id}-{name}", cache_policy=NO_CACHE, persist_result=False)
def run_stage(stage: Stage, out: str, film_id: str, name: str, keeps_film: bool) -> bool:
    """Run one stage on a film of the data set at `out`, shown; False if it was already up to date.

    Without `keeps_film` the copy of a film from an address is removed from this machine.
    """
    with film_at(out, film_id) as folder, shown(film_id, name) as watch:
        try:
            watch.changed = perform(stage, folder, watch)
        finally:
            if not keeps_film:
                drop_film(folder)
    return watch.changed


def _service_failed(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
    return isinstance(state.result(raise_on_failure=False), EndpointDownError)


@task(
    task_run_name="{film_id}-captions-{number:03d}",
    tags=[CAPTIONS],
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=3,
    retry_delay_seconds=exponential_backoff(10),
    retry_jitter_factor=0.5,
    retry_condition_fn=_service_failed,
)
def ask_captions(stage: WriteCaptions, out: str, film_id: str, number: int, clip_ids: list[str]) -> None:
    """Ask the caption service about one batch of clips; replies are kept per clip, so a retry asks only the rest."""
    with film_at(out, film_id) as folder, shown(film_id, f"captions, batch {number + 1}") as watch:
        stage.ask_batch(folder, clip_ids, watch)
