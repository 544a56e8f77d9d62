"""Audit of a data set, as data card and report show it: estimated accuracy of each field, and agreement."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.pages.ledger import share
from pipeline.reviews.audit.intervals import Share
from pipeline.reviews.audit.results import AuditResults


@dataclass(frozen=True)
class AuditTables:
    """Sentence and tables of an audit."""

    remark: str
    accuracy: list[tuple[str, str, str, str]]
    """Field, share of right values, its interval, judged values of the clips with a label."""
    agreement: list[tuple[str, int, str, str]]
    """Field, clips with two reviewers, share of equal answers, Krippendorff's alpha."""


def audit_tables(audit: AuditResults, captioner: str | None, reviewers: list[str]) -> AuditTables:
    """Return the tables of an audit.

    Args:
        audit: its results.
        captioner: source of the data set's captions.
        reviewers: people whose reviews are in the data set.
    """
    return AuditTables(
        remark=_remark(audit, captioner, reviewers),
        accuracy=[
            (name, _percent(right.share), _interval(right), f"{field.answered} of {field.labelled}")
            for field in audit.fields
            for name, right in (
                (field.field, field.best),
                (f"{field.field}: precision", field.precision),
                (f"{field.field}: recall", field.recall),
            )
            if right
        ],
        agreement=[
            (row.field, row.clips, share(row.equal, row.clips), "" if row.alpha is None else f"{row.alpha:.2f}")
            for row in audit.agreement
        ],
    )


def _remark(audit: AuditResults, captioner: str | None, reviewers: list[str]) -> str:
    sources = [f"captions by {captioner}"] if captioner else []
    sources += [f"reviews by {', '.join(reviewers)}"] if reviewers else []
    strata = f" within every {audit.by}" if audit.by else ""
    sight = "without sight of" if audit.blind else "in sight of"
    judges = ", ".join(f"{name} ({clips})" for name, clips in audit.reviewers.items())
    return (
        f"Sources of the labels: {' and '.join(sources)}. Of {audit.population:,} samples, {audit.clips:,} drawn at "
        f"random{strata} were judged {sight} the machine's answers; clips judged by {judges}. A word is right if it "
        "means the same by grammar or by the vocabulary. What the data set leaves null is not judged; what cannot be "
        "said is not counted."
    )


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _interval(right: Share) -> str:
    return f"{100 * right.low:.1f} to {100 * right.high:.1f} %"
