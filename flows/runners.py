"""Runners of a build: threads of this process, the workers of a Prefect work pool, or a Ray cluster.

Films are independent, so `workers` makes each film a separate flow run for any worker of the pool: the simple step
beyond one machine. `ray` distributes the stages instead: each requests the CPUs, and the share of a GPU, that its
`resources` name. Both need a Prefect server that all machines reach, and a data set that all machines see: a shared
disk, or an address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flows.engine import has_server
from pipeline.core.config import RunSettings
from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from prefect_ray import RayTaskRunner

REACH_SECONDS = 10.0
"""Timeout of the connection to the head of a Ray cluster."""


@contextmanager
def connected(settings: RunSettings) -> Iterator[None]:
    """Connect to the services that the runner needs, for the block.

    Raises:
        UserError: no Prefect server is configured for other machines, or package or cluster is missing.
    """
    if settings.runner != "threads" and not has_server():
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
    """Prefect task runner for the cluster that `connected` has joined."""
    from prefect_ray import RayTaskRunner

    return RayTaskRunner(address=settings.ray_address)


def _check_port(address: str) -> None:
    """Fail early if no cluster answers: Ray itself retries for ten minutes."""
    host = urlsplit(address if "://" in address else f"ray://{address}")
    socket.create_connection((host.hostname or "", host.port or 0), timeout=REACH_SECONDS).close()


@contextmanager
def _ray(address: str) -> Iterator[None]:
    """Join the cluster once, for the runners of all films."""
    try:
        import prefect_ray  # noqa: F401
        import ray
    except ImportError as error:
        raise UserError(f"the runner `ray` needs another package ({error}): `make install-ray`") from error
    try:
        if address != "auto":
            _check_port(address)
        ray.init(address, namespace="prefect", log_to_driver=False)
    except (OSError, ValueError) as error:
        raise UserError(f"no Ray cluster at `{address}` ({error}): start one with `ray start --head`") from error
    try:
        yield
    finally:
        ray.shutdown()
