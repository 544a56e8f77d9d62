"""Tables of an audit: accuracy of each field with its interval, most frequent confusions, agreement of reviewers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Column, Table

from pipeline.core.plain_text import printable
from pipeline.reviews.audit.accuracy import FieldAccuracy
from pipeline.reviews.audit.agreement import Agreement
from pipeline.reviews.audit.intervals import Share
from pipeline.reviews.audit.results import AuditResults, Results, StratumAccuracy

MOST_FAULTS = 5


def accuracy_table(fields: Sequence[FieldAccuracy]) -> Table:
    """Table with a row for each reading of each field."""
    table = Table(
        "field",
        "read as",
        Column("right", justify="right"),
        Column("95 % interval", no_wrap=True),
        Column("answered", justify="right"),
        Column("labelled", justify="right"),
        Column("unsaid", justify="right"),
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for field in fields:
        for row in _rows(field):
            table.add_row(*row)
    return table


def agreement_table(agreement: Sequence[Agreement]) -> Table:
    """Table of the fields that two reviewers answered for the same clips."""
    numbers = [Column(name, justify="right") for name in ("clips", "equal", "alpha")]
    table = Table("agreement", *numbers, "reviewers", box=None, pad_edge=False, header_style="bold")
    for row in agreement:
        alpha = "-" if row.alpha is None else f"{row.alpha:.2f}"
        equal = f"{100 * row.equal / row.clips:.1f} %"
        table.add_row(row.field, str(row.clips), equal, alpha, escape(printable(", ".join(row.reviewers))))
    return table


def strata_table(strata: Sequence[StratumAccuracy]) -> Table:
    """Table with a row for each field of each level or character, read in the widest way."""
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("right", "95 % interval", "answered")]
    table = Table("within", "field", *numbers, box=None, pad_edge=False, header_style="bold")
    for stratum in strata:
        for field in stratum.fields:
            if found := field.best:
                right, interval = _percent(found)
                name = escape(printable(stratum.stratum))
                table.add_row(name, field.field, right, interval, str(field.answered))
    return table


def confusion_lines(fields: Sequence[FieldAccuracy]) -> list[str]:
    """Return a line for each field with wrong answers, the most frequent first."""
    return [
        f"{field.field}: " + ", ".join(f"{one.answer} for {one.label} ({one.clips})" for one in field.confusions)
        for field in fields
        if field.confusions
    ]


def remarks(results: Results) -> Iterator[str]:
    """Yield sentences about the clips, the reviewers and the lines that were not used."""
    by = ", ".join(f"{name} ({clips})" for name, clips in results.reviewers.items())
    if isinstance(results, AuditResults):
        strata = f" by {results.by}" if results.by else ""
        blind = ", blind to the machine's answers" if results.blind else ""
        yield (
            f"{results.clips:,} clips answered of {results.sample:,} drawn{strata} from {results.population:,}{blind}; "
            f"reviewers: {by}"
        )
        if results.lost:
            yield f"{results.lost} clips of the sample are not in the data set any more, and do not count"
    else:
        yield f"{results.clips:,} clips labelled; reviewers: {by}"
    lines = results.lines
    if lines.foreign or lines.unmatched:
        yield f"not used: {lines.foreign} lines about other films, {lines.unmatched} about spans that are no clip"
    for fault in lines.faults[:MOST_FAULTS]:
        yield f"not a decision: {fault}"
    if len(lines.faults) > MOST_FAULTS:
        yield f"and {len(lines.faults) - MOST_FAULTS} more lines that are not decisions"


def _rows(field: FieldAccuracy) -> Iterator[tuple[str, ...]]:
    head, counts = field.field, (f"{field.answered}", f"{field.labelled}", f"{field.unsaid or '-'}")
    if not field.accuracy:
        yield (head, "-", "-", "no answers", *counts)
    for name, share in {**field.accuracy, "precision": field.precision, "recall": field.recall}.items():
        if share:
            yield (head, name, *_percent(share), *counts)
            head, counts = "", ("", "", "")


def _percent(share: Share) -> tuple[str, str]:
    return f"{100 * share.share:.1f} %", f"{100 * share.low:.1f} to {100 * share.high:.1f} %"
