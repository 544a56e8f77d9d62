"""Commands `build`, `config` and `deploy`: command-line options to a plan, run as a Prefect flow."""

from __future__ import annotations

import gc
import logging
import os
import resource
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.commands.dataset import checked_request
from flows.console.terminal import say
from pipeline.core.config import Config, checked, load_config
from pipeline.core.errors import UserError
from pipeline.core.toml import as_toml
from pipeline.plan.request import BuildRequest, Until

if TYPE_CHECKING:
    from pipeline.plan.build_plan import Plan

Captioner = Literal["rules", "server"]
Runner = Literal["threads", "workers", "ray"]


def build(
    films: Annotated[
        list[str],
        typer.Argument(metavar="FILM...", help="Video files, folders searched for them, or addresses of files."),
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", help="Dataset to create or update: a folder, or s3://bucket/folder.")
    ],
    cast: Annotated[
        str | None,
        typer.Option(help="Folder (or address) with one folder of reference pictures per character: CAST/NAME/*.png"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings as TOML; `animegamer config` prints them all.")] = None,
    captioner: Annotated[
        Captioner | None,
        typer.Option(help="`rules` states measured facts, offline; `server` queries an OpenAI-compatible endpoint."),
    ] = None,
    flow: Annotated[
        str | None,
        typer.Option(
            help="Optical flow: `dis` on any CPU, or a ptlflow model such as `memflow`, "
            "with its weights as `[motion] checkpoint`."
        ),
    ] = None,
    end: Annotated[float | None, typer.Option(metavar="SECONDS", help="Use each film only up to this time.")] = None,
    runner: Annotated[
        Runner | None,
        typer.Option(
            help="Use `threads` of this process, `workers` of a Prefect work pool (a film each), or a `ray` cluster."
        ),
    ] = None,
    until: Annotated[
        Until, typer.Option(help="Last stage to run; the same command later, perhaps on a GPU machine, resumes there.")
    ] = Until.publish,
    ask_again: Annotated[
        bool,
        typer.Option("--ask-again", help="Retry clips without a usable caption, and send changed questions again."),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only probe the films and print what the build would take; writes nothing.")
    ] = False,
) -> None:
    """Build a dataset from films: WebDataset shards, a data card and a report to look at.

    Safe to run again at any time: finished, unchanged parts are skipped.

        animegamer build ponyo.mkv films/ more/*.mkv --cast cast/ --out data/

    Exit code: 0 success, 1 nothing could be built, 2 built with the failures listed, or a wrong command line.
    """
    settings = _override(load_config(config), captioner, flow, end, runner)
    request = checked_request(films=tuple(films), out=out, cast=cast, config=settings, until=until, ask_again=ask_again)
    raise typer.Exit(_build(request, only_plan=plan))


def _override(
    config: Config, captioner: Captioner | None, flow: str | None, end: float | None, runner: Runner | None
) -> Config:
    """Return the configuration with the command-line options applied, validated like the file."""
    values: defaultdict[str, Any] = defaultdict(dict, config.model_dump(exclude_defaults=True))
    if captioner:
        values["captions"]["captioner"] = captioner
    if flow:
        values["motion"]["model"] = flow
    if end is not None:
        values["film"]["end_seconds"] = end
    if runner:
        values["run"]["runner"] = runner
    return checked(values, "the command line")


def _build(request: BuildRequest, *, only_plan: bool) -> int:
    from flows.console.progress import STOPPED, Bars

    _check_limits()
    try:
        with Bars().watching():
            return _only_plan(request) if only_plan else _plan_and_run(request)
    except KeyboardInterrupt:
        say(STOPPED, "yellow")
        return 130


def _check_limits() -> None:
    """Raise a UserError for shell limits under which a build hangs, or fails without naming the limit."""
    for name, unit, limit, least in (
        ("ulimit -n", "open files", resource.RLIMIT_NOFILE, 32),
        ("ulimit -v", "bytes of memory", resource.RLIMIT_AS, 2_500_000_000),
    ):
        allowed = resource.getrlimit(limit)[0]
        if allowed != resource.RLIM_INFINITY and allowed < least:
            raise UserError(f"`{name}` allows {allowed:,} {unit}, and a build needs {least:,}: raise it in this shell")


def _only_plan(request: BuildRequest) -> int:
    """Print what the build would take; the dataset is only read, and not made."""
    from flows.console.summary import print_estimate
    from pipeline.plan.build_plan import draft_plan
    from pipeline.plan.workspace import Workspace

    with TemporaryDirectory(prefix="animegamer-plan-") as scratch:
        workspace = Workspace(request.out, Path(scratch))
        # fetching a dataset from an address needs the lock of its local copy
        with workspace.locked("animegamer build --plan") if workspace.is_copy else nullcontext():
            plan = draft_plan(request, workspace, fetch=False)
        for notice in plan.notices:
            say(notice)
        return print_estimate(plan)


def _plan_and_run(request: BuildRequest) -> int:
    from flows.console.summary import print_summary
    from pipeline.plan.build_plan import make_plan
    from pipeline.plan.publish import is_published
    from pipeline.plan.workspace import Workspace

    workspace = Workspace(request.out)
    with workspace.locked("animegamer build"):
        plan = make_plan(request, workspace)
        for notice in plan.notices:
            say(notice)
        if not plan.films:
            return print_summary(plan, plan.refusals)
        if plan.unfinished or (plan.publishing and not is_published(plan.dataset, plan.config)):
            return print_summary(plan, _run(plan))
        say("nothing to do: every stage is up to date")
        if plan.publishing:
            plan.workspace.send()  # a build killed at the very end may not have sent everything
    return print_summary(plan, plan.refusals)


def _run(plan: Plan) -> list[str]:
    """Run the plan as a flow; return one line per failure. Errors that are not a failure of a film are raised."""
    set_prefect_defaults()
    gc.disable()  # imported modules are not garbage, and scanning them takes a tenth of the import time
    from prefect.exceptions import PrefectException  # importing Prefect takes seconds: only when there is work

    from flows.dataset import run_plan

    gc.enable()

    with ThreadPoolExecutor(max_workers=1) as pool:
        # not in the main thread, where Prefect would replace our SIGTERM handler by its own
        state = pool.submit(copy_context().run, run_plan, plan).result()
    if state.is_completed():
        return []
    error = state.result(raise_on_failure=False)
    if state.is_failed() and isinstance(error, Exception) and not isinstance(error, PrefectException):
        raise error
    failures = (state.message or "the build failed").splitlines()
    return [*(line for line in plan.refusals if line not in failures), *failures]


def config() -> None:
    """Print the complete default configuration as TOML, with the meaning of every key."""
    typer.echo("# Every key of `animegamer build --config FILE`; leave out what you do not change.\n")
    typer.echo(as_toml(Config()))


def deploy(
    pool: Annotated[
        str, typer.Option(help="Work pool, created if missing; its workers: `prefect worker start --pool NAME`.")
    ] = "animegamer",
) -> None:
    """Create the deployments on the Prefect server that PREFECT_API_URL names: work pool, limits, `prefect.yaml`.

    Safe to run again. Workers then run what is started on the server's pages, by its schedule, or with

        prefect deployment run build-dataset/animegamer --params '{"request": {"films": [...], "out": "..."}}'
    """
    set_prefect_defaults()
    from flows.deployments import deploy_to

    deploy_to(pool)


class _FirstOnly(logging.Filter):
    """Shorten the first error about an event that the Prefect server did not take, and drop the others.

    Prefect logs every such event in full, 1 to 2 kB every few seconds.
    """

    _is_said = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if "failed to process item" not in str(record.msg):
            return True
        is_first, self._is_said = not self._is_said, True
        record.msg, record.args = "the Prefect server took no event: is it still there? This is said once", ()
        return is_first


_FIRST_ONLY = _FirstOnly()


def set_prefect_defaults() -> None:
    """Set the variables that Prefect reads when it is first imported.

    Telemetry is always off, even if the user's profile enables it. The environment overrides the other two variables.
    Our progress bars and summary replace Prefect's log lines. A build at a terminal must send heartbeats, because the
    automation in `deployments.py` marks runs without heartbeats as crashed.
    """
    os.environ.update(PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    logging.getLogger("prefect._internal.concurrency").addFilter(_FIRST_ONLY)
