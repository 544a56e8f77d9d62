"""Prefect deployments of the builds on a server, and the runs that a build starts for the workers of a pool.

    animegamer deploy                       # PREFECT_API_URL names the server
    prefect worker start --pool animegamer

The deployments are defined in `prefect.yaml` and applied by `prefect deploy`. The server also gets a work pool,
concurrency limits, and an automation that marks a run as crashed when its process has died.

A film has one run of `onboard-film` at a time. After a killed build, workers may still process its films, so the next
build waits for those runs before it starts new ones. On a shared disk, the film's lock would prevent two runs at once,
but a dataset at an address has no locks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from inspect import isawaitable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from prefect import State
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelled, Cancelling, Failed

from flows.console.terminal import say
from pipeline.core.errors import UserError
from pipeline.core.progress import Watch, watched
from pipeline.core.stage import CAPTIONS, GPU
from pipeline.plan.request import BuildRequest, absolute

DEPLOYMENTS_FILE = Path(__file__).parents[1] / "prefect.yaml"
LIMITS = {GPU: 1, CAPTIONS: 2}
"""Most tasks with this tag at once, over all machines; a limit that the server already has is not changed."""
DEAD_RUNS = "animegamer: runs whose process is gone"
DEAD_SECONDS = 90
"""Three heartbeats: see `prefect.yaml` for runs of workers, `set_prefect_defaults` for runs at a terminal."""
FLOW, DEPLOYMENT = "onboard-film", "animegamer"
"""Flow and deployment of a film's run; see `prefect.yaml`."""
ASK_SECONDS = 5
"""Interval between two queries to the server, for each running film."""
TAKEN_UP_SECONDS = 30
"""Delay before a run that has not started is reported; workers poll for runs about every 10 seconds."""
_UNDER_WAY = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
_PAGE = 200
"""Most runs that a server lists at once."""


def deploy_to(pool: str) -> None:
    """Create or update everything on the server that PREFECT_API_URL names; safe to repeat.

    Raises:
        UserError: no server is configured, the server does not answer, or `prefect deploy` fails.
    """
    if not PREFECT_API_URL.value():
        raise UserError(
            "deployments need your own Prefect server: start one with `prefect server start`, and set PREFECT_API_URL, "
            "for instance to http://127.0.0.1:4200/api"
        )
    if not DEPLOYMENTS_FILE.exists():
        raise UserError(f"{DEPLOYMENTS_FILE} does not exist: deploy from a checkout (workers need only the package)")
    try:
        with get_client(sync_client=True) as client:
            _make_pool(client, pool)
            _make_limits(client)
            _watch_for_dead_runs(client)
    except httpx.HTTPError as error:
        raise UserError(f"the Prefect server at {PREFECT_API_URL.value()} rejected the request: {error}") from error
    _apply(pool)


def _make_pool(client: SyncPrefectClient, pool: str) -> None:
    from prefect.workers.process import ProcessWorker  # a second of imports that no build needs

    template = ProcessWorker.get_default_base_job_template()
    try:
        client.create_work_pool(WorkPoolCreate(name=pool, type=ProcessWorker.type, base_job_template=template))
    except ObjectAlreadyExists:
        return
    say(f"made the work pool {pool}")


def _make_limits(client: SyncPrefectClient) -> None:
    there = {limit.name for limit in client.read_global_concurrency_limits(limit=200)}
    for tag, slots in LIMITS.items():
        if f"tag:{tag}" not in there:
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=f"tag:{tag}", limit=slots))
            say(f"made the limit tag:{tag} of {slots}")


def _watch_for_dead_runs(client: SyncPrefectClient) -> None:
    """Create the automation that marks runs without a heartbeat as crashed: only then can they be retried."""
    ends = ("Completed", "Failed", "Cancelled", "Crashed")
    trigger = EventTrigger(
        posture=Posture.Proactive,
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=ResourceSpecification(
            {"prefect.resource.role": "flow", "prefect.resource.name": ["build-dataset", "onboard-film"]}
        ),
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{end}" for end in ends)},
        for_each={"prefect.resource.id"},
        threshold=1,
        within=timedelta(seconds=DEAD_SECONDS),
    )
    crash = ChangeFlowRunState(state=StateType.CRASHED, message="its process gives no sign of life; a retry continues")
    automation = AutomationCore(name=DEAD_RUNS, trigger=trigger, actions=[crash])
    known = client.read_automations_by_name(DEAD_RUNS)
    if known:
        client.update_automation(known[0].id, automation)
    else:
        client.create_automation(automation)


def _apply(pool: str) -> None:
    prefect = (sys.executable, "-m", "prefect", "--no-prompt")
    environment = {**os.environ, "PREFECT_DEPLOYMENTS_DEFAULT_WORK_POOL_NAME": pool}
    done = subprocess.run(
        [*prefect, "deploy", "--all", "--prefect-file", DEPLOYMENTS_FILE],
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise UserError(f"`prefect deploy` ended with exit code {done.returncode}; its output is above")


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
                say(f"{film_id}: waiting for run {run.id} of an earlier build, which is still in progress")
                _final_state(client, run, watch)
            watch(0, 0)  # raises for a film that was still queued when the build was stopped
            state = _state_of_a_new_run(client, film_id, request, watch)
        except httpx.HTTPError as error:
            return Failed(message=f"the Prefect server rejected the request: {error}")
        watch.changed = state.is_completed()
        return state


def _under_way(client: SyncPrefectClient, film_id: str, out: str) -> Iterator[FlowRun]:
    """Scheduled and running runs of the deployment, from any source, for the same film of the same dataset."""
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
    """Film and dataset of a run; empty if its parameters lack them."""
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
