"""Command `audit`: a random sample to judge on the review page, its results, and labels of a file as the truth."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.review import local_dataset, own_name
from pipeline.core.errors import UserError
from pipeline.reviews.audit.sampling import SIZE

if TYPE_CHECKING:
    from pipeline.core.store import Dataset
    from pipeline.reviews.audit.results import Results
    from pipeline.reviews.audit.sampling import AuditSample

SEED = 0
WIDEST = 1000
"""Columns that a table may take, so that no name is broken inside it."""


class By(StrEnum):
    """Strata of a sample."""

    level = "level"
    character = "character"


def audit(
    dataset: Annotated[
        str, typer.Argument(metavar="DIR", help="Output folder of `animegamer build --out`, on this machine.")
    ],
    size: Annotated[
        int | None, typer.Option(min=1, help=f"Clips in the sample; unset: {SIZE}, or all if there are fewer.")
    ] = None,
    by: Annotated[By | None, typer.Option(help="Draw some clips of every motion level, or of every character.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help=f"Another seed, another sample; unset: {SEED}.")] = None,
    blind: Annotated[
        bool, typer.Option("--blind", help="Hide the machine's answers, and those of other reviewers.")
    ] = False,
    reviewer: Annotated[
        str | None, typer.Option(help="Name that the answers carry; unset: your name on this machine.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes any free port.")] = 8732,
    results: Annotated[bool, typer.Option("--results", help="Print the results of the audit.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="Compare the machine's answers with a file of labels, such as a review.jsonl.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="With --results or --against: write the figures to a file.")] = None,
) -> None:
    """Estimate how right a data set is, by a random sample of its clips that people judge on a page.

    The sample and the answers are kept in `audit/` of the data set. The same command continues the audit, also for a
    second reviewer.

        animegamer audit data/ --size 200 --blind --reviewer anna

        animegamer audit data/ --results

    A file of labels gives the accuracy of the machine's answers without an audit:

        animegamer audit data/ --against labels.jsonl --json figures.json
    """
    if results and against:
        raise UserError("give either --results or --against FILE")
    opened = local_dataset(dataset)
    if results or against:
        _refuse_options(size=size, by=by, seed=seed, blind=blind or None, reviewer=reviewer)
        _show(_compared(opened, against) if against else _audited(opened), json)
        return
    if json:
        raise UserError("--json goes with --results or --against")
    _serve(opened, _sample(opened, size, by, seed, blind), reviewer or own_name(), port)


def _refuse_options(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise UserError(f"--{name} goes with an audit on the page, not with --results or --against")


def _sample(dataset: Dataset, size: int | None, by: By | None, seed: int | None, blind: bool) -> AuditSample:
    """Return the sample of the data set, drawn if there is none.

    Raises:
        UserError: there is a sample that was drawn with other options.
    """
    from pipeline.core.atomic import held
    from pipeline.reviews.audit.results import draw_sample
    from pipeline.reviews.audit.sampling import AUDIT_FOLDER, read_sample, save_sample

    folder = dataset.root / AUDIT_FOLDER
    sample = read_sample(dataset.root)
    if sample is None:
        with held(dataset.root, "animegamer audit"):
            sample = draw_sample(dataset, size, by.value if by else None, SEED if seed is None else seed, blind)
            save_sample(dataset.root, sample)
        return sample
    drawn = {"size": len(sample.spans), "by": sample.by, "seed": sample.seed, "blind": sample.blind}
    given = {"size": size, "by": by and by.value, "seed": seed, "blind": blind or None}
    if other := [name for name, value in given.items() if value is not None and value != drawn[name]]:
        raise UserError(
            f"{folder}: holds an audit with {other[0]} {drawn[other[0]]}; leave out --{other[0]} to go on with it, "
            "or move the folder away to start another"
        )
    return sample


def _serve(dataset: Dataset, sample: AuditSample, reviewer: str, port: int) -> None:
    from flows.web.review_app import serve_review
    from flows.web.review_clips import ReviewTask
    from pipeline.reviews.audit.results import sampled_clips
    from pipeline.reviews.audit.sampling import ANSWERS_FILE

    clips = sampled_clips(dataset, sample)
    serve_review(dataset, ReviewTask(dataset.root / ANSWERS_FILE, reviewer, clips, sample.blind), port)


def _audited(dataset: Dataset) -> Results:
    from pipeline.publish.vocabulary import load_vocabulary
    from pipeline.reviews.audit.results import audit_results

    found = audit_results(dataset, load_vocabulary(dataset.root).published)
    if found is None:
        raise UserError(f"{dataset.root}: nothing was audited yet; `animegamer audit` opens the page to do it")
    return found


def _compared(dataset: Dataset, labels: Path) -> Results:
    from pipeline.publish.vocabulary import load_vocabulary
    from pipeline.reviews.audit.results import compare

    return compare(dataset, labels, load_vocabulary(dataset.root).published)


def _show(results: Results, json: Path | None) -> None:
    """Print results, and write their figures to a file if one is given."""
    from rich.console import Console

    from flows.console.audit import accuracy_table, agreement_table, confusion_lines, remarks, strata_table
    from pipeline.core.atomic import write_json
    from pipeline.core.plain_text import printable
    from pipeline.reviews.audit.results import AuditResults

    shown = Console(soft_wrap=True, width=WIDEST)  # a long line is for the terminal to wrap, or for a pipe as it is
    shown.print(accuracy_table(results.fields))
    for line in confusion_lines(results.fields):
        shown.print(printable(line), markup=False, highlight=False)
    if isinstance(results, AuditResults) and results.strata:
        shown.print(strata_table(results.strata))
    if results.agreement:
        shown.print(agreement_table(results.agreement))
    for remark in remarks(results):
        shown.print(printable(remark), markup=False, highlight=False)
    if json:
        write_json(json, results.model_dump(mode="json"))
