"""Who works on the films: threads of this process, the workers of a Prefect work pool, or a Ray cluster.

Films are independent, so `workers` makes each film a flow run of its own, which any worker of the pool takes up: the
simple step beyond one machine. `ray` spreads the stages instead: each asks the cluster for its share of CPUs, and
of a GPU where its optical flow is a network. Both want a Prefect server that all machines reach, and a data set that
all machines see: a shared disk, or an address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prefect import Task
from prefect.settings import PREFECT_API_URL

from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import RunSettings
from pipeline.core.errors import UserError
from pipeline.core.stage import Stage
from pipeline.stages.motion import MeasureMotion

if TYPE_CHECKING:
    from prefect_ray import RayTaskRunner

GPU, CAPTIONS = "gpu", "captions"
"""Tags of tasks: a concurrency limit of this name, set on the server, holds for all machines together."""


REACH_SECONDS = 10.0
"""How long the head of a Ray cluster may take to answer."""


def needs_gpu(stage: Stage) -> bool:
    """Whether the stage runs a network of ours, which wants a GPU."""
    return isinstance(stage, MeasureMotion) and stage.settings.model != "dis"


def run_task(task: Task[..., Any], stage: Stage, settings: RunSettings, *arguments: object) -> None:
    """Run a task about a stage to its end, where the settings say; what it raises is raised here."""
    if settings.runner != "ray":
        done: object = task(stage, *arguments)
        assert not isawaitable(done), "our tasks are plain functions"
        return
    from prefect_ray.context import remote_options

    gpus = settings.ray_gpus if needs_gpu(stage) else 0
    cpus = 0.1 if isinstance(stage, WriteCaptions) else settings.threads or 1  # captions only wait for the service
    with remote_options(num_cpus=cpus, num_gpus=gpus):
        task.submit(stage, *arguments).result()


@contextmanager
def connected(settings: RunSettings) -> Iterator[None]:
    """Whatever the runner needs, for as long as films are worked on.

    Raises:
        UserError: there is no Prefect server for other machines, no package, or no cluster.
    """
    if settings.runner != "threads" and not PREFECT_API_URL.value():
        raise UserError(
            f"the runner `{settings.runner}` needs a Prefect server that every machine reaches: start one with "
            "`prefect server start` and set PREFECT_API_URL, for instance to http://127.0.0.1:4200/api"
        )
    if settings.runner != "ray":
        yield
        return
    with _ray(settings.ray_address):
        yield


def ray_runner(settings: RunSettings) -> RayTaskRunner:
    """Prefect's runner for the cluster that `connected` has joined."""
    from prefect_ray import RayTaskRunner

    return RayTaskRunner(address=settings.ray_address)


def _knock(address: str) -> None:
    """Fail soon where nobody is: Ray itself would go on trying for ten minutes."""
    host = urlsplit(address if "://" in address else f"ray://{address}")
    socket.create_connection((host.hostname or "", host.port or 0), timeout=REACH_SECONDS).close()


@contextmanager
def _ray(address: str) -> Iterator[None]:
    """Join the cluster once: the runner of every film finds it joined."""
    try:
        import prefect_ray  # noqa: F401
        import ray
    except ImportError as error:
        raise UserError(f"the runner `ray` needs a package more ({error}): `make install-ray`") from error
    try:
        if address != "auto":
            _knock(address)
        ray.init(address, namespace="prefect", log_to_driver=False)
    except (OSError, ValueError) as error:
        raise UserError(f"no Ray cluster at `{address}` ({error}): start one with `ray start --head`") from error
    try:
        yield
    finally:
        ray.shutdown()
