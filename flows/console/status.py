"""Status table of a data set: a row per film with the coloured state of each stage; and the reasons, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.filesize import decimal
from rich.table import Table

from pipeline.core.plain_text import printable
from pipeline.plan.status import FilmRow, StageState

COLOURS = {
    StageState.done: "green",
    StageState.stale: "yellow",
    StageState.failed: "red",
    StageState.missing: "dim",
    StageState.unknown: "magenta",
}


def as_table(rows: Sequence[FilmRow]) -> Table:
    """Table with a row per film: the state of each stage, counts and size."""
    stages = list(rows[0].cells) if rows else []
    table = Table("film", *stages, "clips", "kept", "size", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        states = (f"[{COLOURS[cell.state]}]{cell.state}[/]" for cell in row.cells.values())
        counts = ("-" if count is None else str(count) for count in (row.clips, row.kept))
        table.add_row(printable(row.film_id), *states, *counts, decimal(row.bytes))
    return table


def explanations(rows: Sequence[FilmRow]) -> list[str]:
    """Reasons, one line for each part that is not done."""
    return [
        f"{row.film_id}  {name}: {cell.state}, {cell.why}"
        for row in rows
        for name, cell in row.cells.items()
        if cell.state is not StageState.done
    ]
