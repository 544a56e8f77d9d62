"""The `animegamer` command. Each sub-command imports what it needs when it runs, so help is instant and torch-free."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.commands.dataset import asked, calibrate, report, status, told, verify
from flows.commands.model import import_weights, new_checkpoint
from flows.commands.play import play
from flows.commands.train import recipe, train
from flows.console.terminal import is_text, say
from flows.plan.request import BuildRequest, Until
from flows.prefect_settings import set_prefect_defaults
from pipeline.core.config import Config, ConfigError, as_toml, checked, load_config

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Anime films to WebDataset shards, and the AnimeGamer model to play on: an endless game of animation shots.",
)


class Captioner(StrEnum):
    """Who writes the captions."""

    rules = "rules"
    server = "server"


class Runner(StrEnum):
    """Who works on the films."""

    threads = "threads"
    workers = "workers"
    ray = "ray"


@app.command()
def build(
    films: Annotated[
        list[str],
        typer.Argument(metavar="FILM...", help="Video files (or addresses), in any format FFmpeg reads."),
    ],
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="Data set: made, or brought up to date. A folder, or s3://bucket/folder."),
    ],
    cast: Annotated[
        str | None,
        typer.Option(help="Folder (or address) with one folder of reference pictures per character: CAST/NAME/*.png"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings as TOML; `animegamer config` prints them all.")] = None,
    captioner: Annotated[
        Captioner | None,
        typer.Option(help="`rules` states measured facts, offline; `server` asks an OpenAI-compatible endpoint."),
    ] = None,
    flow: Annotated[
        str | None, typer.Option(help="Optical flow: `dis` on any CPU, or a ptlflow model such as `memflow`.")
    ] = None,
    end: Annotated[float | None, typer.Option(metavar="SECONDS", help="Use each film only up to here.")] = None,
    runner: Annotated[
        Runner | None,
        typer.Option(help="`threads` of this process; `workers` of a Prefect work pool, a film each; a `ray` cluster."),
    ] = None,
    until: Annotated[
        Until, typer.Option(help="Last stage to run; the same command later, perhaps on a GPU box, goes on from there.")
    ] = Until.publish,
) -> None:
    """Build a data set from films: WebDataset shards, a data card and a report to look at.

    Safe to run again at any time: what is done and unchanged is skipped.

        animegamer build ponyo.mkv kiki.mkv --cast cast/ --out data/

    Exit code: 0 all good, 1 nothing could be built, 2 built, but with the failures listed.
    """
    with told():
        settings = _override(load_config(config), captioner, flow, end, runner)
        request = asked(films=tuple(films), out=out, cast=cast, config=settings, until=until)
    raise typer.Exit(_build(request))


def _override(
    config: Config, captioner: Captioner | None, flow: str | None, end: float | None, runner: Runner | None
) -> Config:
    """The configuration with the options of the command line on top, checked like the file."""
    changed: dict[str, dict[str, Any]] = config.model_dump(exclude_defaults=True)
    values = {section: changed.get(section, {}) for section in Config.model_fields}
    if captioner:
        values["captions"]["captioner"] = captioner.value
    if flow:
        values["motion"]["model"] = flow
    if end is not None:
        values["film"]["end_seconds"] = end
    if runner:
        values["run"]["runner"] = runner.value
    return checked(values, "the command line")


def _build(request: BuildRequest) -> int:
    from flows.console.progress import STOPPED, Bars

    try:
        with told(), Bars().watching():
            return _plan_and_run(request)
    except KeyboardInterrupt:
        say(STOPPED, "yellow")
        return 130


def _plan_and_run(request: BuildRequest) -> int:
    from flows.plan.build_plan import alone, is_settled, make_plan
    from flows.plan.publish import is_published
    from flows.plan.summary import print_summary
    from pipeline.core.atomic import HeldError
    from pipeline.remote.film_cache import drop_film

    with alone(request):
        plan = make_plan(request)
        settled = is_settled(plan) and (not plan.publish or is_published(plan.dataset, plan.config))
        if settled and plan.publish:
            plan.place.send()  # what a build that was killed at the very end has not sent
    for notice in plan.notices:
        say(notice)
    refused = [f"{refusal.record_id}: {refusal.reason}" for refusal in plan.refused]
    if not plan.films:
        return print_summary(plan, refused)
    if settled:
        say("nothing to do: every stage is up to date")
        for film_id in plan.films:
            drop_film(plan.dataset.folder(film_id))
        return print_summary(plan, refused)
    set_prefect_defaults()
    from flows.dataset import build_dataset  # Prefect takes seconds to import: only when there is work

    # Prefect stores its parameters as UTF-8; a name that is none was refused above
    given = request.model_copy(update={"films": tuple(filter(is_text, request.films))})
    with ThreadPoolExecutor(max_workers=1) as pool:
        # not in the main thread, where Prefect would put its own answer to SIGTERM in the place of ours
        state = pool.submit(copy_context().run, partial(build_dataset, given, return_state=True)).result()
    error = None if state.is_completed() else state.result(raise_on_failure=False)
    if isinstance(error, ConfigError | HeldError):
        raise error  # it never came to a film
    told = [] if state.is_completed() else (state.message or "the build failed").splitlines()
    return print_summary(plan, [*(line for line in refused if line not in told), *told])


@app.command()
def config() -> None:
    """Print the complete default configuration as TOML, every key with its meaning."""
    typer.echo(as_toml(Config()))


@app.command()
def deploy(
    pool: Annotated[
        str, typer.Option(help="Work pool, made if it is not there: `prefect worker start --pool` names it.")
    ] = "animegamer",
) -> None:
    """Make the builds deployments on the Prefect server that PREFECT_API_URL names: pool, limits, `prefect.yaml`.

    Safe to run again; workers then take up what is started on the server's pages, by its schedule, or with

        prefect deployment run build-dataset/animegamer --params '{"request": {"films": [...], "out": "..."}}'
    """
    set_prefect_defaults()
    from flows.deploy import deploy_to

    with told():
        deploy_to(pool)


for command in (status, verify, report, calibrate, new_checkpoint, import_weights, play, train, recipe):
    app.command()(command)


def main() -> None:
    """Entry point of the `animegamer` command."""
    app()


if __name__ == "__main__":
    main()
