"""Command `audit`: a random sample to label on the review page, its results, and labels of a file as the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.review import LocalDataset, Port, local_dataset, own_name
from pipeline.core.atomic import held, write_json
from pipeline.core.errors import UserError
from pipeline.reviews.audit_sample import ANSWERS_FILE, AUDIT_FOLDER, SIZE, Strata, read_sample, save_sample

if TYPE_CHECKING:
    from pipeline.core.store import Dataset
    from pipeline.reviews.audit_sample import AuditSample


def audit(
    dataset: LocalDataset,
    size: Annotated[
        int | None, typer.Option(min=1, help=f"Clips in the sample. [default: {SIZE}, or all if there are fewer]")
    ] = None,
    by: Annotated[Strata | None, typer.Option(help="Draw clips of every motion level, or every character.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sample. [default: 0]")] = None,
    blind: Annotated[bool, typer.Option("--blind", help="Hide captions and the answers of other reviewers.")] = False,
    reviewer: Annotated[
        str | None, typer.Option(help="Your name in the file of answers. [default: your login name]")
    ] = None,
    port: Port = 8732,
    results: Annotated[bool, typer.Option("--results", help="Print the results of the audit.")] = False,
    against: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Compare the machine's answers with a file of labels."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Print the results, and write their figures to a file.")] = None,
) -> None:
    """Estimate the accuracy of a dataset by labelling a random sample of its clips in the browser.

        animegamer audit data/ --size 200 --blind --reviewer anna

        animegamer audit data/ --results

    The dataset keeps the sample and the answers in `audit/`. The same command continues the audit, also for a second
    reviewer. A file of labels gives the accuracy of the machine's answers without an audit:

        animegamer audit data/ --against labels.jsonl --json figures.json
    """
    opened = local_dataset(dataset)
    options = {"size": size, "by": by, "seed": seed, "blind": blind or None}
    given = {name: value for name, value in options.items() if value is not None}
    if not (results or against or json):
        _serve(opened, _sample(opened, given), reviewer or own_name(), port)
    elif given or reviewer or (results and against):
        raise UserError(
            "--size, --by, --seed, --blind and --reviewer go with the page, and --results and --against are two "
            "ways to see results: omit the others"
        )
    else:
        _show(opened, against, json)


def _sample(dataset: Dataset, given: dict[str, Any]) -> AuditSample:
    """Return the sample of the dataset, drawn if there is none. UserError if it was drawn with other options."""
    from pipeline.reviews.audit import draw_sample

    sample = read_sample(dataset.root)
    if sample is None:
        with held(dataset.root, "animegamer audit"):
            sample = draw_sample(dataset, **given)
            save_sample(dataset.root, sample)
        return sample
    drawn = {"size": len(sample.spans), "by": sample.by, "seed": sample.seed, "blind": sample.blind}
    for name, value in given.items():
        if value != drawn[name]:
            raise UserError(
                f"{dataset.root / AUDIT_FOLDER}: holds an audit with {name} {drawn[name]}; omit --{name} to continue "
                "it, or move the folder away to start another"
            )
    return sample


def _serve(dataset: Dataset, sample: AuditSample, reviewer: str, port: int) -> None:
    from flows.web.review_app import serve_review
    from flows.web.review_clips import ReviewTask
    from pipeline.reviews.audit import sampled_clips
    from pipeline.reviews.clips import reviewable

    clips = list(sampled_clips(dataset, sample, reviewable(dataset, None)))
    if not clips:
        folder = dataset.root / AUDIT_FOLDER
        raise UserError(f"{folder} belongs to another dataset: this one keeps none of its clips; move it away")
    serve_review(dataset, ReviewTask(dataset.root / ANSWERS_FILE, reviewer, clips, sample.blind), port)


def _show(dataset: Dataset, against: Path | None, json: Path | None) -> None:
    """Print results, and write their figures to a file if one is given."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from pipeline.publish.vocabulary import load_vocabulary
    from pipeline.reviews.audit import audit_results, compare

    groups = load_vocabulary(dataset.root).published
    results = compare(dataset, against, groups) if against else audit_results(dataset, groups)
    if results is None:
        raise UserError(f"{dataset.root}: no clip of an audit is labelled yet; run `animegamer audit` to label some")
    console = Console(soft_wrap=True, width=1000)  # so wide that no table breaks a name
    accuracy = ("field", "read as", "right", "95% interval", "answered", "labelled", "unsaid")
    agreement = ("agreement", "clips", "equal", "alpha", "reviewers")
    for heading, rows in (
        (accuracy, [row for field in results.fields for row in field.rows]),
        (agreement, [field.row for field in results.agreement]),
    ):
        if rows:
            table = Table(*heading, box=None, pad_edge=False, header_style="bold")
            for row in rows:
                table.add_row(*map(escape, row))
            console.print(table)
    for line in (results.sentence, *results.findings):
        console.print(line, markup=False, highlight=False)
    if json:
        write_json(json, results.model_dump(mode="json"))
