"""Accuracy of each field of a data set: right answers over answers given, with intervals, coverage and confusions.

A null of the data set is no answer: it lowers the coverage, not the accuracy. A null of the label says that the field
cannot be said of this clip, so no answer is right or wrong there; such clips are counted apart. Free words are read in
every way of `readings.py`. Names on screen are right as a whole set; precision and recall count single names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.records import Record
from pipeline.reviews.audit.intervals import Share, Stratum, estimated
from pipeline.reviews.audit.readings import SCORED, Form, Groups, readings_of
from pipeline.reviews.decisions import Value

MOST_CONFUSIONS = 5


@dataclass(frozen=True)
class Labelled:
    """Clip with labels, beside its values in the data set."""

    values: Mapping[str, Value]
    """Answers of the data set by field; a field without an answer is missing."""
    labels: Mapping[str, Value]
    """True values by field; null: cannot be said."""
    stratum: str = ""


class Confusion(Record):
    """Wrong answer, by the widest reading of its field."""

    answer: str
    label: str
    clips: int


class FieldAccuracy(Record):
    """Accuracy of one field."""

    field: str
    labelled: int
    """Clips with a label that says something."""
    unsaid: int
    """Clips of which reviewers say that it cannot be said; they count nowhere else."""
    answered: int
    """Labelled clips with an answer of the data set."""
    coverage: Share | None
    accuracy: dict[str, Share]
    """Share of the answers that are right, by reading, the strictest first."""
    precision: Share | None = None
    """Share of the names given that are on screen."""
    recall: Share | None = None
    """Share of the names on screen that are given, of the clips with an answer."""
    confusions: tuple[Confusion, ...]

    @property
    def best(self) -> Share | None:
        """Accuracy by the widest reading."""
        return next(reversed(self.accuracy.values()), None)


def accuracies(clips: Sequence[Labelled], groups: Groups, populations: Mapping[str, int] | None) -> list[FieldAccuracy]:
    """Return the accuracy of each field that has a label.

    Args:
        clips: clips with labels.
        groups: values that are published as one.
        populations: clips of the data set in each stratum; None: the labelled clips are no sample of this data set.
    """
    labelled = ((field, [clip for clip in clips if field in clip.labels]) for field in SCORED)
    return [_accuracy(field, found, groups, populations) for field, found in labelled if found]


def _accuracy(
    field: str, clips: Sequence[Labelled], groups: Groups, populations: Mapping[str, int] | None
) -> FieldAccuracy:
    seen = {clip.stratum for clip in clips}
    missing = sum(size for name, size in (populations or {}).items() if name not in seen)

    def share(hits: Callable[[Labelled], float], tries: Callable[[Labelled], float]) -> Share | None:
        return estimated(_strata(clips, hits, tries, populations), missing)

    def said(clip: Labelled) -> bool:
        return clip.labels[field] is not None

    def answered(clip: Labelled) -> bool:
        return said(clip) and field in clip.values

    def right(form: Form) -> Callable[[Labelled], bool]:
        return lambda clip: answered(clip) and form(clip.values[field]) == form(clip.labels[field])

    def names(values: Callable[[Labelled], Mapping[str, Value]]) -> Callable[[Labelled], int]:
        return lambda clip: len(_set(values(clip)[field])) if answered(clip) else 0

    def shared(clip: Labelled) -> int:
        return len(_set(clip.values[field]) & _set(clip.labels[field])) if answered(clip) else 0

    forms = readings_of(field, groups)
    by_reading = {reading: share(right(form), answered) for reading, form in forms.items()}
    of_sets = field == "characters"
    return FieldAccuracy(
        field=field,
        labelled=sum(map(said, clips)),
        unsaid=sum(not said(clip) for clip in clips),
        answered=sum(map(answered, clips)),
        coverage=share(answered, said),
        accuracy={reading: found for reading, found in by_reading.items() if found},
        precision=share(shared, names(lambda clip: clip.values)) if of_sets else None,
        recall=share(shared, names(lambda clip: clip.labels)) if of_sets else None,
        confusions=_confusions(field, [clip for clip in clips if answered(clip)], list(forms.values())[-1]),
    )


def _strata(
    clips: Sequence[Labelled],
    hits: Callable[[Labelled], float],
    tries: Callable[[Labelled], float],
    populations: Mapping[str, int] | None,
) -> list[Stratum]:
    counts: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for clip in clips:
        counts[clip.stratum if populations else ""].append((hits(clip), tries(clip)))
    columns = {name: np.array(rows, float).T for name, rows in counts.items()}
    if populations is None:
        return [Stratum(hits_N, tries_N) for hits_N, tries_N in columns.values()]
    return [Stratum(hits_N, tries_N, populations[name]) for name, (hits_N, tries_N) in columns.items()]


def _confusions(field: str, clips: Sequence[Labelled], form: Form) -> tuple[Confusion, ...]:
    pairs = Counter(
        (_text(answer), _text(label))
        for answer, label in ((form(clip.values[field]), form(clip.labels[field])) for clip in clips)
        if answer != label
    )
    return tuple(
        Confusion(answer=answer, label=label, clips=count)
        for (answer, label), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:MOST_CONFUSIONS]
    )


def _set(value: Value) -> frozenset[str]:
    return frozenset(value) if isinstance(value, tuple) else frozenset()


def _text(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "nobody"
    return {True: "keep", False: "drop"}[value] if isinstance(value, bool) else str(value)
