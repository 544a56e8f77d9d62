"""Command `audit`: a random sample to label on the review page, its results, and labels of a file as the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.commands.review import LocalDataset, Port, local_dataset, own_name
from pipeline.core.errors import UserError
from pipeline.reviews.audit_sample import SIZE

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline.core.store import Dataset
    from pipeline.reviews.audit import Results
    from pipeline.reviews.audit_sample import AuditSample

SEED = 0
WIDEST = 1000
"""Columns that a table may take, so that no name is broken inside it."""
MOST_FAULTS = 5
By = Literal["level", "character"]


def audit(
    dataset: LocalDataset,
    size: Annotated[
        int | None, typer.Option(min=1, help=f"Clips in the sample. [default: {SIZE}, or all if there are fewer]")
    ] = None,
    by: Annotated[By | None, typer.Option(help="Draw some clips of every motion level, or of every character.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help=f"Seed of the sample. [default: {SEED}]")] = None,
    blind: Annotated[bool, typer.Option("--blind", help="Hide captions and the answers of other reviewers.")] = False,
    reviewer: Annotated[
        str | None, typer.Option(help="Your name in the file of answers. [default: your login name]")
    ] = None,
    port: Port = 8732,
    results: Annotated[bool, typer.Option("--results", help="Print the results of the audit.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="Compare the machine's answers with a file of labels, such as a review.jsonl.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="With --results or --against: write the figures to a file.")] = None,
) -> None:
    """Estimate the accuracy of a dataset by labelling a random sample of its clips in the browser.

        animegamer audit data/ --size 200 --blind --reviewer anna

        animegamer audit data/ --results

    The dataset keeps the sample and the answers in `audit/`. The same command continues the audit, also for a second
    reviewer. A file of labels gives the accuracy of the machine's answers without an audit:

        animegamer audit data/ --against labels.jsonl --json figures.json
    """
    if results and against:
        raise UserError("give either --results or --against FILE")
    opened = local_dataset(dataset)
    if not results and not against:
        if json:
            raise UserError("--json goes with --results or --against")
        _serve(opened, _sample(opened, size, by, seed, blind), reviewer or own_name(), port)
        return
    for name, value in {"size": size, "by": by, "seed": seed, "blind": blind or None, "reviewer": reviewer}.items():
        if value is not None:
            raise UserError(f"--{name} goes with an audit on the page, not with --results or --against")
    _show(_results(opened, against), json)


def _sample(dataset: Dataset, size: int | None, by: By | None, seed: int | None, blind: bool) -> AuditSample:
    """Return the sample of the dataset, drawn if there is none.

    Raises:
        UserError: there is a sample that was drawn with other options.
    """
    from pipeline.core.atomic import held
    from pipeline.reviews.audit import draw_sample
    from pipeline.reviews.audit_sample import AUDIT_FOLDER, read_sample, save_sample

    sample = read_sample(dataset.root)
    if sample is None:
        with held(dataset.root, "animegamer audit"):
            sample = draw_sample(dataset, size, by, SEED if seed is None else seed, blind)
            save_sample(dataset.root, sample)
        return sample
    drawn = {"size": len(sample.spans), "by": sample.by, "seed": sample.seed, "blind": sample.blind}
    given = {"size": size, "by": by, "seed": seed, "blind": blind or None}
    if other := [name for name, value in given.items() if value is not None and value != drawn[name]]:
        raise UserError(
            f"{dataset.root / AUDIT_FOLDER}: holds an audit with {other[0]} {drawn[other[0]]}; omit --{other[0]} to "
            "continue it, or move the folder away to start another"
        )
    return sample


def _serve(dataset: Dataset, sample: AuditSample, reviewer: str, port: int) -> None:
    from flows.web.review_app import serve_review
    from flows.web.review_clips import ReviewTask
    from pipeline.reviews.audit import sampled_clips
    from pipeline.reviews.audit_sample import ANSWERS_FILE

    clips = sampled_clips(dataset, sample)
    serve_review(dataset, ReviewTask(dataset.root / ANSWERS_FILE, reviewer, clips, sample.blind), port)


def _results(dataset: Dataset, against: Path | None) -> Results:
    from pipeline.publish.vocabulary import load_vocabulary
    from pipeline.reviews.audit import audit_results, compare

    groups = load_vocabulary(dataset.root).published
    found = compare(dataset, against, groups) if against else audit_results(dataset, groups)
    if found is None:
        raise UserError(f"{dataset.root}: no clip is labelled yet; run `animegamer audit` to label some")
    return found


def _show(results: Results, json: Path | None) -> None:
    """Print results, and write their figures to a file if one is given."""
    from rich.console import Console

    from pipeline.core.atomic import write_json
    from pipeline.core.plain_text import first_few, printable
    from pipeline.reviews.audit import AuditResults

    console = Console(soft_wrap=True, width=WIDEST)
    heading = ("field", "read as", "right", "95% interval", "answered", "labelled", "unsaid")
    _print_table(console, heading, [row for field in results.fields for row in field.rows])
    if isinstance(results, AuditResults):
        within = [
            (one.stratum, field.field, field.best.percent, field.best.interval, f"{field.answered:,}")
            for one in results.strata
            for field in one.fields
            if field.best
        ]
        _print_table(console, ("within", "field", "right", "95% interval", "answered"), within)
    agreement = [field.row for field in results.agreement]
    _print_table(console, ("agreement", "clips", "equal", "alpha", "reviewers"), agreement)
    console.print(printable(results.sentence), markup=False, highlight=False)
    lines = results.lines
    if lines.foreign or lines.unmatched:
        console.print(f"not used: {lines.foreign} lines about other films, {lines.unmatched} about no clip")
    if lines.faults:
        faults = first_few(lines.faults, MOST_FAULTS)
        console.print(f"not a decision: {faults}", markup=False, highlight=False)
    if json:
        write_json(json, results.model_dump(mode="json"))


def _print_table(console: Console, heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.markup import escape
    from rich.table import Column, Table

    from pipeline.core.plain_text import printable

    if rows:
        table = Table(*(Column(name, no_wrap=True) for name in heading), box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(escape(printable(cell)) for cell in row))
        console.print(table)
