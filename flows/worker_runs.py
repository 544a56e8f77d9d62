"""Flow runs of the deployment `onboard-film`, one per film: started for the workers of a pool, awaited, cancelled.

    state = run_at_a_worker("ponyo-01234567", request)

A film has one run at a time. After a killed build, workers may still process its films, so the next build waits for
those runs before it starts its own: on a shared disk the film's lock prevents two runs at once, at an address
no lock does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from inspect import isawaitable
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
from prefect import State
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling, Failed

from flows.console.terminal import say
from pipeline.core.errors import UserError
from pipeline.core.progress import Watch, watched
from pipeline.plan.request import BuildRequest, absolute

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

FLOW, DEPLOYMENT = "onboard-film", "animegamer"
"""Flow and deployment of a film's run; see `prefect.yaml`."""
ASK_SECONDS = 5
"""Interval between two queries to the server, for each running film."""
TAKEN_UP_SECONDS = 30
"""Delay before a run that has not started is reported; workers poll for runs about every 10 seconds."""
_UNDER_WAY = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
_PAGE = 200
"""Most runs that a server lists at once."""


def run_at_a_worker(film_id: str, request: BuildRequest) -> State[Any]:
    """Bring the film up to date on a worker; return the final state of its run, Failed if the server rejects it.

    Raises:
        UserError: the server does not have the deployment.
        KeyboardInterrupt: the build is being stopped; the run is cancelled.
    """
    with get_client(sync_client=True) as client, watched(film_id, "at a worker") as watch:
        watch.changed = False
        try:
            for run in list(_under_way(client, film_id, request.out)):
                say(f"{film_id}: run {run.id} of an earlier build is under way; waiting for its end")
                _final_state(client, run, watch)
            watch(0, 0)  # raises for a film that was still queued when the build was stopped
            state = _state_of_a_new_run(client, film_id, request, watch)
        except httpx.HTTPError as error:
            return Failed(message=f"the Prefect server rejected the request: {error}")
        watch.changed = state.is_completed()
        return state


def _under_way(client: SyncPrefectClient, film_id: str, out: str) -> Iterator[FlowRun]:
    """Scheduled and running runs of the deployment, from any source, for the same film of the same data set."""
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=_UNDER_WAY))
    for offset in count(0, _PAGE):
        page = client.read_flow_runs(
            flow_filter=FlowFilter(name=FlowFilterName(any_=[FLOW])),
            flow_run_filter=FlowRunFilter(state=state),
            limit=_PAGE,
            offset=offset,
        )
        yield from (run for run in page if run.deployment_id and _film_and_dataset(run) == (film_id, _normalized(out)))
        if len(page) < _PAGE:
            return


def _film_and_dataset(run: FlowRun) -> tuple[str, str]:
    """Film and data set of a run; empty where its parameters lack them."""
    return run.parameters.get("film_id", ""), _normalized(run.parameters.get("request", {}).get("out", ""))


def _normalized(out: str) -> str:
    """Canonical form of a path or address."""
    return absolute(out).rstrip("/")


def _state_of_a_new_run(client: SyncPrefectClient, film_id: str, request: BuildRequest, watch: Watch) -> State[Any]:
    run = _start_run(film_id, request)
    try:
        return _final_state(client, run, watch)
    except KeyboardInterrupt:
        with suppress(httpx.HTTPError):
            client.set_flow_run_state(run.id, Cancelling(message="the build was stopped"))
        raise


def _start_run(film_id: str, request: BuildRequest) -> FlowRun:
    parameters = {"film_id": film_id, "request": request.model_dump(mode="json")}
    name = f"{FLOW}/{DEPLOYMENT}"
    try:
        run = run_deployment(name, parameters=parameters, flow_run_name=film_id, timeout=0)
    except ObjectNotFound:
        raise UserError(f"the server has no {name}: `animegamer deploy` makes it") from None
    assert not isawaitable(run), "awaitable only inside a running event loop"
    return run


def _final_state(client: SyncPrefectClient, run: FlowRun, watch: Watch) -> State[Any]:
    """Wait for the end of the run, without a time limit and also while the server is down; return its final state."""
    notice_at = time.monotonic() + TAKEN_UP_SECONDS
    while True:
        try:
            run = client.read_flow_run(run.id)
        except ObjectNotFound:
            return Cancelled(message="its run was deleted from the server")
        except httpx.HTTPError as error:  # after Prefect's own retries
            if isinstance(error, httpx.HTTPStatusError) and not error.response.is_server_error:
                raise
            say(f"{run.name}: the Prefect server does not answer ({error}); retrying")
        if run.state and run.state.is_final():
            return run.state
        if time.monotonic() > notice_at and run.state and not run.state.is_running():
            notice_at = float("inf")
            state, start = run.state.type.value.lower(), f"prefect worker start --pool {run.work_pool_name}"
            say(
                f"{run.name}: its run is still {state}; is a worker (`{start}`) free for it? "
                f"`prefect flow-run cancel {run.id}` cancels it"
            )
        for _ in range(ASK_SECONDS):
            watch(0, 0)
            time.sleep(1)
