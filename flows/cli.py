"""The `animegamer` command. Each sub-command imports what it needs when it runs, so help is instant and torch-free."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.model_commands import import_weights, new_checkpoint, play
from flows.request import BuildRequest, Until
from flows.terminal import is_text, say
from flows.train_commands import recipe, train
from pipeline.config import Config, ConfigError, as_toml, checked, load_config

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


class Method(StrEnum):
    """How level edges are fitted."""

    quantiles = "quantiles"
    published = "published"


DatasetFolder = Annotated[Path, typer.Argument(metavar="DATASET", help="A folder that `animegamer build --out` made.")]


def _fail(message: str) -> typer.Exit:
    say(f"animegamer: {message}", "red")
    return typer.Exit(1)


@app.command()
def build(
    films: Annotated[list[Path], typer.Argument(metavar="FILM...", help="Video files, in any format FFmpeg reads.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Data set folder: made, or brought up to date.")],
    cast: Annotated[
        Path | None, typer.Option(help="Folder with one folder of reference pictures per character: CAST/NAME/*.png")
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
    until: Annotated[
        Until, typer.Option(help="Last stage to run; the same command later, perhaps on a GPU box, goes on from there.")
    ] = Until.publish,
) -> None:
    """Build a data set from films: WebDataset shards, a data card and a report to look at.

    Safe to run again at any time: what is done and unchanged is skipped.

        animegamer build ponyo.mkv kiki.mkv --cast cast/ --out data/

    Exit code: 0 all good, 1 nothing could be built, 2 built, but with the failures listed.
    """
    try:
        settings = _override(load_config(config), captioner, flow, end)
    except ConfigError as error:
        raise _fail(str(error)) from error
    request = BuildRequest(films=tuple(films), out=out, cast=cast, config=settings, until=until)
    raise typer.Exit(_build(request))


def _override(config: Config, captioner: Captioner | None, flow: str | None, end: float | None) -> Config:
    """The configuration with the options of the command line on top, checked like the file."""
    values: dict[str, Any] = config.model_dump()
    if captioner:
        values["captions"]["captioner"] = captioner.value
    if flow:
        values["motion"]["model"] = flow
    if end is not None:
        values["film"]["end_seconds"] = end
    return checked(values, "the command line")


def _build(request: BuildRequest) -> int:
    from flows.progress import STOPPED, Bars
    from pipeline.cast import CastError
    from pipeline.store import StoreError

    try:
        with Bars().watching():
            return _plan_and_run(request)
    except (ConfigError, CastError, StoreError) as error:
        raise _fail(str(error)) from error
    except KeyboardInterrupt:
        say(STOPPED, "yellow")
        return 130


def _plan_and_run(request: BuildRequest) -> int:
    from flows.publish import is_published
    from flows.stages import is_settled, make_plan
    from flows.summary import print_summary

    plan = make_plan(request)
    for notice in plan.notices:
        say(notice)
    refused = [f"{refusal.record_id}: {refusal.reason}" for refusal in plan.refused]
    if not plan.films:
        return print_summary(plan, refused)
    if is_settled(plan) and (not plan.publish or is_published(plan.dataset, plan.config)):
        say("nothing to do: every stage is up to date")
        return print_summary(plan, refused)
    from flows.dataset import build_dataset  # Prefect takes seconds to import: only when there is work

    # Prefect stores its parameters as UTF-8; a name that is none was refused above
    given = request.model_copy(update={"films": tuple(film for film in request.films if is_text(str(film)))})
    with ThreadPoolExecutor(max_workers=1) as pool:
        # not in the main thread, where Prefect would put its own answer to SIGTERM in the place of ours
        state = pool.submit(copy_context().run, partial(build_dataset, given, return_state=True)).result()
    told = [] if state.is_completed() else (state.message or "the build failed").splitlines()
    return print_summary(plan, [*(line for line in refused if line not in told), *told])


@app.command()
def verify(dataset: DatasetFolder) -> None:
    """Check everything: shards against their index, samples against the tables, every clip by decoding it.

    Exit code: 0 nothing wrong, 1 faults found (listed with their remedy).
    """
    from flows.progress import Bars, watched
    from pipeline.store import StoreError, open_dataset
    from pipeline.verify import verify as find_faults

    try:
        with Bars().watching(), watched(dataset.name, "verify") as watch:
            faults = find_faults(open_dataset(dataset), progress=watch)
    except StoreError as error:
        raise _fail(str(error)) from error
    for fault in faults:
        say(f"fault  {fault}", "red")
    say(f"{len(faults)} faults" if faults else "verified: no fault")
    raise typer.Exit(1 if faults else 0)


@app.command()
def report(dataset: DatasetFolder) -> None:
    """Write the data card and the report again from what the data set holds, and print where they are."""
    from pipeline.pages.card import write_card
    from pipeline.pages.report import write_report
    from pipeline.store import StoreError, open_dataset

    try:
        folder = open_dataset(dataset)
        settings = checked(folder.record.config, str(dataset / "dataset.json"))
        for page in (write_card(folder, settings.card), write_report(folder)):
            typer.echo(page)
    except (StoreError, ConfigError) as error:
        raise _fail(str(error)) from error


@app.command()
def calibrate(
    dataset: DatasetFolder,
    method: Annotated[
        Method,
        typer.Option(help="`quantiles`: equal counts per level; `published`: midpoints of the published table."),
    ] = Method.quantiles,
) -> None:
    """Fit the edges of the five motion levels to a data set, from the motion scopes already measured.

    The edges go into `dataset.json`; the next `animegamer build` uses them for verdicts, captions and shards. A
    `motion.edges` in your configuration still wins.
    """
    from pipeline.levels import calibrate as fit
    from pipeline.store import StoreError, open_dataset

    try:
        folder = open_dataset(dataset)
        fitted = fit(folder, method.value)
    except (StoreError, ValueError) as error:
        raise _fail(str(error)) from error
    folder.save(
        folder.record.model_copy(
            update={"edges": fitted.edges, "level_values": fitted.values, "edges_from": f"calibrated: {method.value}"}
        )
    )
    for level, (value, count) in enumerate(zip(fitted.values, fitted.counts, strict=True), start=1):
        upper = f"up to {fitted.edges[level - 1]:.3g}" if level < 5 else "above"
        typer.echo(f"level {level}  {upper:>12} px  median {value:.3g} px  {count} clips")
    typer.echo("now run `animegamer build` again with the same films: what depends on the levels is redone")


@app.command()
def config() -> None:
    """Print the complete default configuration as TOML, every key with its meaning."""
    typer.echo(as_toml(Config()))


for command in (new_checkpoint, import_weights, play, train, recipe):
    app.command()(command)


def main() -> None:
    """Entry point of the `animegamer` command."""
    app()


if __name__ == "__main__":
    main()
