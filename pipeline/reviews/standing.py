"""Standing of a reviewed field: the value to publish, the reviewers' voices, and their conflict.

A reviewer's newest line about a field stands for that reviewer, by its time and then by its place in the file. Voices
that differ are a conflict, until a line of `settled: NAME`; then only newer voices that differ from the settled value
are one. The newest of these lines is published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.reviews.decisions import Decision, Value


@dataclass(frozen=True)
class Standing:
    """Reviewed value of one field of one clip."""

    value: Value
    """The value to publish; None: cannot be said."""
    reviewer: str
    """Reviewer of that value, `settled: NAME` for a settled one."""
    time: datetime
    """Time of that decision."""
    conflict: bool
    """True if reviewers differ, after the newest settling line if there is one."""
    voices: Mapping[str, Value]
    """Standing value of each reviewer, in the order of their times, without the settling lines."""


def standings(decisions: Iterable[Decision]) -> dict[str, Standing]:
    """Return the standing of every field that is reviewed, by field.

    Args:
        decisions: all decisions about one clip, in the order of the file.
    """
    newest: dict[str, dict[str, Decision]] = defaultdict(dict)
    for decision in in_time(decisions):
        lines = newest[decision.field]
        lines.pop(decision.reviewer, None)
        lines[decision.reviewer] = decision
    found = {
        field: _standing([line for line in lines.values() if not line.withdraws]) for field, lines in newest.items()
    }
    return {field: standing for field, standing in found.items() if standing}


def in_time(decisions: Iterable[Decision]) -> list[Decision]:
    """Return decisions by their times; those of one time stay in the order of the file."""
    return sorted(decisions, key=lambda decision: decision.time)


def comparable(value: Value) -> object:
    """Return a value in the form in which equal decisions are equal: names as a set, text without case and spacing."""
    if isinstance(value, tuple):
        return frozenset(value)
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def _standing(lines: list[Decision]) -> Standing | None:
    """Return the standing of a field from the standing lines of its reviewers, the newest last."""
    if not lines:
        return None
    voices = {line.reviewer: line.value for line in lines if not line.settles}
    differ = len({comparable(value) for value in voices.values()}) > 1
    last = lines[-1]
    settled = next((place for place, line in reversed(list(enumerate(lines))) if line.settles), None)
    if settled is not None:  # a voice since then differs from the settled value, or joins it
        differ = any(comparable(line.value) != comparable(lines[settled].value) for line in lines[settled:])
    return Standing(
        value=last.value,
        reviewer=last.reviewer,
        time=last.time,
        conflict=differ,
        voices=voices,
    )
