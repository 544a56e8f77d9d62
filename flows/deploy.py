"""Prefect deployments of the builds, set up on a server; and helpers of runs that a worker starts.

    animegamer deploy                       # PREFECT_API_URL names the server
    prefect worker start --pool animegamer

The deployments are defined in `prefect.yaml` and applied by `prefect deploy`. The server also gets a work pool,
concurrency limits, and an automation that marks a run as crashed when its process has died.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from flows.console.terminal import say
from pipeline.core.atomic import HeldError
from pipeline.core.errors import UserError
from pipeline.core.stage import CAPTIONS, GPU

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

DEPLOYMENTS_FILE = Path(__file__).parents[1] / "prefect.yaml"
LIMITS = {GPU: 1, CAPTIONS: 2}
"""Most tasks with this tag at once, over all machines; a limit that the server already has is not changed."""
DEAD_RUNS = "animegamer: runs whose process is gone"
DEAD_SECONDS = 90
"""Three heartbeats: see `prefect.yaml` for runs of workers, `flows/prefect_settings.py` for runs at a terminal."""
LOCK_WAIT_SECONDS = 120
"""Longest wait of a worker's run for a lock: an NFS server releases the locks of a dead machine after 90 seconds."""


def deploy_to(pool: str) -> None:
    """Create or update everything on the server that PREFECT_API_URL names; safe to repeat.

    Raises:
        UserError: no server is configured, it cannot be reached, or the deployments cannot be applied.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():
        raise UserError(
            "deployments live on a Prefect server of your own: start one with `prefect server start` and set "
            "PREFECT_API_URL, for instance to http://127.0.0.1:4200/api"
        )
    if not DEPLOYMENTS_FILE.exists():
        raise UserError(f"{DEPLOYMENTS_FILE}: no such file; run this from a checkout, workers need only the package")
    try:
        with get_client(sync_client=True) as client:
            _make_pool(client, pool)
            _make_limits(client)
            _watch_for_dead_runs(client)
    except httpx.HTTPError as error:
        raise UserError(f"the Prefect server at {PREFECT_API_URL.value()} rejected the request: {error}") from error
    _apply(pool)


def _make_pool(client: SyncPrefectClient, pool: str) -> None:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    try:
        client.create_work_pool(WorkPoolCreate(name=pool, type=ProcessWorker.type, base_job_template=template))
    except ObjectAlreadyExists:
        return
    say(f"made the work pool {pool}")


def _make_limits(client: SyncPrefectClient) -> None:
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate

    there = {limit.name for limit in client.read_global_concurrency_limits(limit=200)}
    for tag, slots in LIMITS.items():
        if f"tag:{tag}" not in there:
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=f"tag:{tag}", limit=slots))
            say(f"made the limit tag:{tag} of {slots}")


def _watch_for_dead_runs(client: SyncPrefectClient) -> None:
    """Create the automation that marks runs without a heartbeat as crashed: only then can they be retried."""
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

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


@contextmanager
def acquire_with_retry(take: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Hold the lock that `take` takes; a run started by a worker retries if another process holds it.

    The holder may be the process of an earlier run, which outlives its worker for a moment. In any other run
    the error is raised at once and names the holder.

    Raises:
        HeldError: the lock is still held.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(take())
                break
            except HeldError:
                if time.monotonic() > deadline or not _is_deployment_run():
                    raise
            time.sleep(1)
        yield


def _is_deployment_run() -> bool:
    from prefect.runtime import deployment

    return deployment.id is not None
