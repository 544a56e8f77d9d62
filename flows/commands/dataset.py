"""Commands on an existing dataset: `status`, `verify`, `report`, `remove`, `calibrate` and `vocabulary`.

Each takes a folder or an address; a dataset at an address is fetched first, and sent back if it was changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.filesize import decimal

from flows.console.terminal import say
from pipeline.core.config import Config, load_config, recorded
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.plain_text import printable
from pipeline.core.records import faults_of
from pipeline.plan.request import BuildRequest

if TYPE_CHECKING:
    from pipeline.plan.workspace import Workspace

LONGEST_LINE = 10_000
"""Width of the status table, on any terminal: an id that is folded or cut off cannot be copied."""
DatasetPlace = Annotated[
    str, typer.Argument(metavar="DATASET", help="Output of `animegamer build --out`: a folder, or an address.")
]


def checked_request(**fields: Any) -> BuildRequest:
    """Return a validated build request. UserError if an address contains a secret, which must not be stored."""
    try:
        return BuildRequest(**fields)
    except ValidationError as error:
        raise UserError(faults_of(error)) from None


def open_workspace(dataset: str) -> Workspace:
    """Open the dataset, fetched if at an address; a local copy that a build is working on is the newest version."""
    from pipeline.core.atomic import HeldError
    from pipeline.plan.workspace import Workspace

    workspace = Workspace(dataset)
    if workspace.is_copy:
        with suppress(HeldError), workspace.locked("fetching the dataset"):
            workspace.fetch()
    workspace.check_made()
    return workspace


def settings_of(workspace: Workspace) -> Config:
    """Configuration of the last build."""
    return recorded(workspace.dataset.record.config, workspace.dataset.root)


def status(
    dataset: DatasetPlace,
    explain: Annotated[bool, typer.Option("--explain", help="Print why each part is not done.")] = False,
    cast: Annotated[str | None, typer.Option(help="Compare with this cast folder, not the last build's cast.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Compare with these settings, to see what a build with them would redo.")
    ] = None,
) -> None:
    """Show per film and stage what is done, stale, failed or missing, with counts and sizes. Changes nothing.

    A part made from an input that is not on this machine, the cast or the weights of a network, is `unknown`.

    For example, what stricter settings would redo, and why:

        animegamer status data/ --config stricter.toml --explain
    """
    from pipeline.plan.status import as_table, explanations, film_rows, published_line, review_lines

    shown = Console(soft_wrap=True, width=LONGEST_LINE)
    workspace = open_workspace(dataset)
    settings = load_config(config) if config else settings_of(workspace)
    certain = [*(["captions"] if cast else []), *(["motion"] if config else [])]
    request = checked_request(films=(), out=dataset, cast=cast or workspace.dataset.record.cast_source, config=settings)
    rows = film_rows(workspace.dataset, request, certain)
    shown.print(as_table(rows))
    shown.print("shards", published_line(workspace.dataset, settings, rows), highlight=False)
    for line in review_lines(workspace.dataset, settings):
        shown.print("reviews", printable(line), markup=False, highlight=False)
    for row in rows:
        if row.no_clip:
            shown.print(printable(f"{row.film_id}  {row.no_clip}"), markup=False, highlight=False)
    for line in explanations(rows) if explain else ():
        shown.print(printable(line), markup=False, highlight=False)
    left, unknown = sum(row.open_parts for row in rows), sum(row.unknown_parts for row in rows)
    if left:
        shown.print(f"{left} parts to do: `animegamer build` does them")
    if unknown:
        shown.print(f"{unknown} parts cannot be judged on this machine; --explain says why")
    if not left and not unknown:
        shown.print("every stage of every film is done")


def verify(dataset: DatasetPlace) -> None:
    """Check everything: shards against their index, samples against the tables, every clip by decoding it.

    Exit code: 0 no fault, 1 faults found (listed with their remedy).
    """
    from flows.console.progress import Bars
    from pipeline.core.progress import watched
    from pipeline.publish.verify import verify as find_faults

    workspace = open_workspace(dataset)
    with Bars().watching(), watched(workspace.dataset.root.name, "verify") as watch:
        faults = find_faults(workspace.dataset, progress=watch)
    for fault in faults:
        say(f"fault  {fault}", "red")
    say(f"{len(faults)} faults" if faults else "verified: no fault")
    raise typer.Exit(1 if faults else 0)


def report(dataset: DatasetPlace) -> None:
    """Write the data card and the report of the dataset again, and print their paths."""
    from pipeline.pages.card import write_card
    from pipeline.pages.report import write_report

    workspace = open_workspace(dataset)
    with workspace.locked("animegamer report"):
        for page in (write_card(workspace.dataset, settings_of(workspace).card), write_report(workspace.dataset)):
            typer.echo(page)
        workspace.send()


def remove(
    dataset: DatasetPlace,
    films: Annotated[
        list[str], typer.Argument(metavar="FILM_ID...", help="Films by their ids, as `animegamer status` shows them.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Take films out of a dataset: delete their folders, with clips, tables and the replies of a captioner.

    The films' own video files stay. Shards, card and report stay too, until the next `animegamer build` of the other
    films publishes without these. If you build a removed film again, it is decoded and captioned again.

        animegamer remove data/ ponyo-01234567
    """
    from pipeline.core.atomic import held
    from pipeline.plan.status import size_of

    workspace = open_workspace(dataset)
    with workspace.locked("animegamer remove"), ExitStack() as locks:
        record = workspace.dataset.record
        names = {entry.film_id: entry.name for entry in record.films}
        if unknown := [film_id for film_id in films if film_id not in names]:
            there = f"the films are {', '.join(names)}" if names else "the dataset has no films"
            raise UserError(f"{', '.join(unknown)}: no such film here; {there}")
        folders = [workspace.dataset.folder(film_id) for film_id in dict.fromkeys(films)]
        for folder in folders:
            _refuse_to_delete(folder.path, set(names.values()))
            size = decimal(size_of(folder.path))
            typer.echo(f"to delete: {folder.path}, {size}, made from {printable(names[folder.film_id])}")
        if not yes:
            typer.confirm("Delete?", abort=True)
        for folder in folders:  # lock all folders before the first is deleted
            locks.enter_context(held(folder.path, "animegamer remove"))
        for folder in folders:
            with disk_errors(folder.path):
                shutil.rmtree(folder.path)
        left = tuple(entry for entry in record.films if entry.film_id not in films)
        workspace.dataset.save(record.model_copy(update={"films": left}))
        workspace.send()
    rest = "now run `animegamer build` with the other films and the same options: it publishes the rest"
    typer.echo(f"removed; {rest if left else 'no film is left, and shards, card and report stay as they are'}")


def _refuse_to_delete(folder: Path, films: Collection[str]) -> None:
    """Raise a UserError for a film's folder that holds a film, by its file name."""
    for path in folder.rglob("*"):
        if path.name in films:
            raise UserError(f"{path}: this video is in the folder to delete; move it to another place first")


def calibrate(
    dataset: DatasetPlace,
    method: Annotated[
        Literal["quantiles", "published"],
        typer.Option(help="Fit equal counts per level (`quantiles`), or take the published table's midpoints."),
    ] = "quantiles",
) -> None:
    """Fit the edges of the five motion levels to a dataset, from the measured motion scopes.

    The edges go into `dataset.json`; the next `animegamer build` uses them for verdicts, captions and shards. A
    `motion.edges` in your configuration takes precedence.
    """
    from pipeline.stages.motion_levels import calibrate as fit

    workspace = open_workspace(dataset)
    with workspace.locked("animegamer calibrate"):
        fitted = fit(workspace.dataset, method)
        workspace.dataset.save(fitted.stored_in(workspace.dataset.record))
        workspace.send()
    for level, (value, count) in enumerate(zip(fitted.values, fitted.counts, strict=True), start=1):
        upper = f"up to {fitted.edges[level - 1]:.3g}" if level < 5 else f"above {fitted.edges[-1]:.3g}"
        typer.echo(f"level {level}  {upper:>12} px  median {value:.3g} px  {count} clips")
    typer.echo("now run `animegamer build` again with the same films and options: what depends on the levels is redone")


def vocabulary(dataset: DatasetPlace) -> None:
    """Suggest which motions and places mean the same, in `vocabulary.toml` of the dataset, for you to edit.

    Only spellings are compared: add synonyms by hand (`"forest" = ["woods"]`). The next build applies the file.
    """
    from pipeline.core.atomic import replacing
    from pipeline.core.records import Caption
    from pipeline.publish.vocabulary import VOCABULARY, as_toml, suggested

    workspace = open_workspace(dataset)
    path = workspace.dataset.root / VOCABULARY
    with workspace.locked("animegamer vocabulary"):
        if path.exists():
            raise UserError(f"{path} already exists: edit it, or move it away for a new suggestion")
        made = [folder for folder in workspace.dataset.folders() if folder.table_path("captions").exists()]
        groups = suggested(row for folder in made for row in folder.read("captions", Caption))
        with replacing(path) as temporary:
            temporary.write_text(as_toml(groups), encoding="utf-8")
        workspace.send()
    found = ", ".join(f"{sum(map(len, group.values()))} values of {tag}" for tag, group in groups.items())
    typer.echo(f"{path}: {found} grouped with others; edit it, then run `animegamer build` again with the same films")
