"""Summary of a build, a table of its films, the failures and the paths of the results; and its estimate beforehand."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.markup import escape
from rich.table import Column, Table

from flows.console.terminal import console, say
from pipeline.core.plain_text import printable
from pipeline.core.records import Clip, Film, Scene
from pipeline.core.stage import is_whole
from pipeline.core.store import FilmFolder
from pipeline.pages.charts import clock
from pipeline.plan.build_plan import Plan
from pipeline.plan.estimate import estimate
from pipeline.plan.publish import left_out, verdicts_of
from pipeline.publish.coverage import film_remarks
from pipeline.publish.seen_clips import read_index_if_made
from pipeline.stages.stretches import Stretch, stretches_of

COLUMNS = "film", "length", "scenes", "clips", "kept", "dropped"


def print_summary(plan: Plan, failures: Sequence[str]) -> int:
    """Print the summary of a build and return its exit code: 0 all good, 1 nothing built, 2 built with failures.

    Args:
        failures: a line for each failed part, with the reason.
    """
    folders = [plan.dataset.folder(film_id) for film_id in plan.films]
    if folders:
        console.print(film_table([film_row(folder) for folder in folders]))
    for folder in folders:
        for remark in film_remarks(folder, plan.config.clips):
            say(f"{folder.film.name}: {remark}", "yellow")
    for failure in failures:
        say(f"failed  {failure}", "red")
    failed = {folder.film_id for folder in folders if folder.failure}  # named above, with the reason
    for film in left_out(plan.dataset, plan.in_shards):
        if film.film_id not in failed:
            why = "its stages do not match any more; name the film in a build to redo and publish it"
            say(f"not in the shards any more  {film.name}: {why}", "yellow")
    if plan.publishing and (index := read_index_if_made(plan.dataset)):
        if index.split_remark:
            say(index.split_remark, "yellow")
        for label, name in (("shards", "shards"), ("card", "README.md"), ("report", "report.html")):
            say(f"{label:<7} {plan.request.out.rstrip('/')}/{name}")
    stages = [stage.name for stage in plan.stages]
    built = any(folder.failure is None and is_whole(folder, stages) for folder in folders)
    return 1 if not built else 2 if failures else 0


def film_table(rows: Iterable[Sequence[str]]) -> Table:
    """Return the table of films; in a narrow terminal, only names and reasons go on in the next line."""
    name, *counts, dropped = COLUMNS
    numbers = (Column(count, no_wrap=True, justify="right") for count in counts)
    texts = (Column(text, overflow="fold") for text in (name, dropped))
    table = Table(next(texts), *numbers, next(texts), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    return table


def print_estimate(plan: Plan) -> int:
    """Print what a build would take, and return the exit code: 0, or 1 if none of its films can be used."""
    found, cores = estimate(plan), os.cpu_count() or 1
    table = Table(box=None, pad_edge=False, show_header=False)
    rows = [
        ("films", f"{len(plan.films):,}, {found.films:,} with work left, together {_hours(found.film_hours)} long"),
        ("clips", f"about {found.clips:,}"),
        ("CPU", f"about {_hours(found.cpu_hours)}, so {_hours(found.cpu_hours / cores)} or more on {cores} cores"),
        ("disk", f"about {found.gigabytes:.2g} GB for clips and shards"),
    ]
    if plan.config.captions.captioner == "server":
        rows.append(("captions", f"about {found.requests:,} requests to {plan.config.captions.endpoint}"))
    if plan.config.motion.model != "dis":
        rows.append(("not counted", f"optical flow by {plan.config.motion.model}, which depends on the GPU"))
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)
    films = [plan.dataset.folder(film_id).film for film_id in plan.films]
    left_out = {film.film_id: stretches_of(film, plan.config.selection) for film in films}
    if any(film.episode is not None or left_out[film.film_id] for film in films):
        console.print(_episode_table(films, left_out))
    for refusal in plan.refusals:
        say(f"failed  {refusal}", "red")
    say("from rates measured on one film; expect a factor of 1.5 either way")
    return 0 if plan.films else 1


def _episode_table(films: Iterable[Film], left_out: Mapping[str, Sequence[Stretch]]) -> Table:
    """Return the films with the series and numbers that were read from their names, and the stretches to leave out."""
    columns = (Column(name, overflow="fold") for name in ("film", "series", "season", "episode", "left out"))
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for film in films:
        stretches = ", ".join(
            f"{one.reason} {clock(one.start_seconds)}-{clock(one.end_seconds)}" for one in left_out[film.film_id]
        )
        cells = (film.name, film.series, film.season, film.episode, stretches)
        table.add_row(*("" if cell is None else escape(printable(str(cell))) for cell in cells))
    return table


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"


def film_row(folder: FilmFolder) -> tuple[str, ...]:
    """Return the columns of a film; its dropped clips are counted by their first reason, and a dash means unknown."""
    minutes, seconds = divmod(round(folder.film.duration_seconds), 60)
    head = folder.film.name, f"{minutes}:{seconds:02d}"
    if not folder.stage_record("cut"):
        return *head, "-", "-", "-", ""
    cut = str(len(folder.read("scenes", Scene))), str(len(folder.read("clips", Clip)))
    if (verdicts := verdicts_of(folder)) is None:
        return *head, *cut, "-", ""
    reasons = Counter(verdict.reasons[0] for verdict in verdicts if not verdict.keep)
    dropped = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return *head, *cut, str(sum(verdict.keep for verdict in verdicts)), dropped
