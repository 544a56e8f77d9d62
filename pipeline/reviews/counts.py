"""Counts of reviews for card, report and status: clips, fields, reviewers, conflicts, lines that are not applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.core.plain_text import first_few
from pipeline.reviews.applied import Reviews
from pipeline.reviews.decisions import FIELDS, SETTLED

MOST_NAMED = 5
"""Lines, conflicts and faults that a finding names; of more it gives the number."""


@dataclass(frozen=True)
class ReviewCounts:
    """Counts of a review file, matched to a data set."""

    clips: int = 0
    """Clips with a reviewed field."""
    fields: Mapping[str, int] = field(default_factory=dict)
    """Reviewed clips by field, in the order of `FIELDS`, without fields that nobody reviewed."""
    reviewers: Mapping[str, int] = field(default_factory=dict)
    """Fields of clips that each reviewer has decided about, the most first."""
    findings: tuple[str, ...] = ()
    """Conflicts, and lines that are not applied, each in a sentence; names in it are safe to print."""
    remarks: tuple[str, ...] = ()
    """Lines that are not applied because only a part of a film was built."""


def count_reviews(reviews: Reviews) -> ReviewCounts:
    """Count reviews, and put conflicts and lines that are not applied into words."""
    found = [standing for fields in reviews.standings.values() for standing in fields.values()]
    fields = Counter(name for names in reviews.standings.values() for name in names)
    voices = Counter(
        reviewer for standing in found for reviewer in {*standing.voices, standing.reviewer.removeprefix(SETTLED)}
    )
    return ReviewCounts(
        clips=len(reviews.standings),
        fields={name: fields[name] for name in FIELDS if fields[name]},
        reviewers=dict(sorted(voices.items(), key=lambda item: (-item[1], item[0]))),
        findings=tuple(_findings(reviews)),
        remarks=tuple(_remarks(reviews)),
    )


def _findings(reviews: Reviews) -> Iterator[str]:
    conflicts = [
        f"{name} of {clip_id} ({', '.join(standing.voices)})"
        for clip_id, fields in reviews.standings.items()
        for name, standing in fields.items()
        if standing.conflict
    ]
    if conflicts:
        yield f"{_many(len(conflicts), 'conflict')} between reviewers: {first_few(conflicts, MOST_NAMED)}"
    for lines, what in (
        (reviews.outside_cast, "a character outside the cast"),
        (reviews.unmatched, "a span of a film that no clip shares"),
        (reviews.foreign, "a film that is not in this data set"),
    ):
        if lines:
            yield f"{_many(len(lines), 'decision')} about {what}: line {first_few(list(map(str, lines)), MOST_NAMED)}"
    if reviews.faults:
        faults = [f"line {fault.line} ({fault.reason})" for fault in reviews.faults]
        yield f"{_many(len(faults), 'line')} that cannot be read as a decision: {first_few(faults, MOST_NAMED)}"


def _remarks(reviews: Reviews) -> Iterator[str]:
    if reviews.later:
        yield f"{_many(len(reviews.later), 'decision')} about parts of films after the last clip, which were not built"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
