"""Engine of flows and tasks: plain calls, a Prefect server, or a Ray cluster.

Without PREFECT_API_URL Prefect would start a temporary server for every command. It costs more CPU time than the stages
of a short film, and what it records ends with the command. So without a server the functions are called plainly, with
the same retries and final states.

Films are independent. The runner `workers` therefore makes each film a separate flow run for any worker of a Prefect
work pool: the simple step beyond one machine. The runner `ray` distributes the stages instead: each requests the CPUs,
and the share of a GPU, that its `resources` name. Both need a Prefect server that all machines reach, and a dataset
that all machines see: a shared disk, or an address.
"""

from __future__ import annotations

import inspect
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prefect import Flow, State, Task
from prefect.settings import PREFECT_API_URL
from prefect.states import Completed, Failed

from pipeline.core.config import RunSettings
from pipeline.core.errors import UserError, memory_fault
from pipeline.core.progress import watched, watcher

if TYPE_CHECKING:
    from prefect_ray import RayTaskRunner

Work = Flow[..., Any] | Task[..., Any]
REACH_SECONDS = 10.0
"""Timeout of the connection to the head of a Ray cluster."""


def has_server() -> bool:
    """Return whether PREFECT_API_URL or the Prefect profile names a server."""
    return bool(PREFECT_API_URL.value())


def run(work: Work, *arguments: object) -> State[Any]:
    """Run a flow or task to its end, a task with its retries, and return the final state."""
    if has_server():
        recorded: Any = work(*arguments, return_state=True)
        assert isinstance(recorded, State), "a coroutine only inside a running event loop"
        return recorded
    for number in count():
        state: State[Any]
        try:
            result = work.fn(*arguments)
            state = result if isinstance(result, State) else Completed(data=result)
        except Exception as error:  # noqa: BLE001 - as in Prefect: a bug, too, ends this run and no other
            state = Failed(message=memory_fault(error) or f"{type(error).__name__}: {error}", data=error)
        is_retryable = getattr(work, "retry_condition_fn", None) or (lambda *_: True)
        if state.is_completed() or number >= (work.retries or 0) or not is_retryable(work, None, state):
            return state
        _pause(work, _run_name(work, arguments), state, number)
    raise AssertionError("the loop has no end")


def _run_name(work: Work, arguments: tuple[object, ...]) -> str:
    """Name of this run of a task, as Prefect's pages show it; without a template, the name of the work."""
    template = getattr(work, "task_run_name", None)
    if not isinstance(template, str):
        return work.name
    return template.format(**dict(zip(inspect.signature(work.fn).parameters, arguments, strict=False)))


def _pause(work: Work, name: str, state: State[Any], number: int) -> None:
    """Wait before a retry, with jitter and in steps of a second; a build that is being stopped ends here."""
    delays = work.retry_delay_seconds
    delay = delays[min(number, len(delays) - 1)] if isinstance(delays, list) else delays or 0.0
    seconds = delay * (1 + (getattr(work, "retry_jitter_factor", None) or 0.0) * random.random())
    error = state.result(raise_on_failure=False)
    watcher.get().say(f"{name}: {error}; retrying in {seconds:.0f} s")
    with watched(name, "waiting to try again") as watch:
        watch.changed = False
        for _ in range(round(seconds)):
            watch(0, 0)
            time.sleep(1)


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
