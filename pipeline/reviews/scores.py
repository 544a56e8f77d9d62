"""Scores of labelled fields: accuracy of a dataset's values against labels, and agreement between reviewers.

A null in the dataset is no answer, so it is neither right nor wrong. A null in the label says that nobody can tell, so
the clip counts nowhere else. Two values are equal in one of three readings, each wider than the one before it:

    exact        `runs`, `run` and `dash` are three motions; names on screen are a set
    lemma        `runs` is `run`: the words' dictionary form, without articles; an adverb is its adjective
    group        `dash` is `run` if `vocabulary.toml` publishes them as one
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from pipeline.core.records import Record
from pipeline.reviews.decisions import FIELDS, Value, comparable
from pipeline.reviews.intervals import Share, Stratum, estimated
from prompts.words import adverb, lemmas

SCORED: Final = tuple(field for field in FIELDS if field != "sentence")
"""Fields with an answer that is right or wrong."""
MOST_VALUES = 1000
"""Maximum number of different values for Krippendorff's alpha, whose time grows with their square."""

Groups = Mapping[str, Mapping[str, str]]
"""Published value of the values that are replaced, by tag: `Vocabulary.published`."""
Form = Callable[[Value], object]
Voices = Mapping[str, Value]
"""Value by reviewer."""
_LEMMAS: Mapping[str, Callable[[str], str]] = {
    "S": partial(lemmas, kind="NOUN"),
    "MD": partial(lemmas, kind="VERB"),
    "EV": partial(lemmas, kind="NOUN"),
    "MA": adverb,
}


@dataclass(frozen=True)
class Labelled:
    """Clip with labels, and its values in the dataset."""

    values: Mapping[str, Value]
    """Answers of the dataset by field; a field without an answer is missing."""
    labels: Mapping[str, Value]
    """True values by field; null if nobody can tell."""
    stratum: str = ""


class FieldAccuracy(Record):
    """Accuracy of one field."""

    field: str
    labelled: int
    """Clips with a label that is not null."""
    unsaid: int
    """Clips whose label is null; they count nowhere else."""
    answered: int
    """Labelled clips with an answer of the dataset."""
    accuracy: dict[str, Share]
    """Share of the answers that are right, by reading, the strictest first."""
    precision: Share | None
    """Share of the names given that are on screen."""
    recall: Share | None
    """Share of the names on screen that are given, in the clips with an answer."""

    @property
    def best(self) -> Share | None:
        """Accuracy by the widest reading."""
        return next(reversed(self.accuracy.values()), None)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rows of a table: field, reading, share of right answers, interval, answered, labelled and unsaid clips."""
        shares = {**self.accuracy, "precision": self.precision, "recall": self.recall}
        cells = [(name, share.percent, share.interval) for name, share in shares.items() if share]
        counts = (f"{self.answered:,}", f"{self.labelled:,}", f"{self.unsaid:,}")
        return [(self.field, *row, *counts) for row in cells or [("-", "-", "no answers")]]


class Agreement(Record):
    """Agreement about one field."""

    field: str
    reviewers: tuple[str, ...]
    clips: int
    """Clips with an answer of two reviewers or more."""
    equal: int
    """Clips whose answers are all equal by the widest reading; null is an answer too."""
    alpha: float | None
    """Krippendorff's alpha, 1 for full agreement and 0 for agreement by chance; null if all answers are equal."""

    @property
    def row(self) -> tuple[str, ...]:
        """Row of a table: field, clips, share of clips with equal answers, alpha, reviewers."""
        alpha = "-" if self.alpha is None else f"{self.alpha:.2f}"
        return (self.field, f"{self.clips:,}", f"{self.equal / self.clips:.1%}", alpha, ", ".join(self.reviewers))


def readings_of(field: str, groups: Groups) -> dict[str, Form]:
    """Return the forms in which values of a field are compared, by the name of the reading, the strictest first."""
    found: dict[str, Form] = {"exact": comparable}
    if lemma := _LEMMAS.get(field):
        found["lemma"] = partial(_in_form, lemma)
        if field in groups:
            table = {lemma(value): lemma(published) for value, published in groups[field].items()}
            found["group"] = partial(_in_form, lambda value: table.get(lemma(value), lemma(value)))
    return found


def accuracies(clips: Sequence[Labelled], groups: Groups, populations: Mapping[str, int] | None) -> list[FieldAccuracy]:
    """Return the accuracy of each field that has a label.

    `populations` are the dataset's clips in each stratum; None if the clips are not a random sample of the dataset.
    """
    labelled = ((field, [clip for clip in clips if field in clip.labels]) for field in SCORED)
    return [_accuracy(field, found, groups, populations) for field, found in labelled if found]


def agreements(clips: Sequence[Mapping[str, Voices]], groups: Groups) -> list[Agreement]:
    """Return the agreement about each field with two reviewers, from the answers per clip by field and reviewer."""
    shared = {field: [clip[field] for clip in clips if len(clip.get(field, {})) > 1] for field in SCORED}
    return [_agreement(field, found, groups) for field, found in shared.items() if found]


def _accuracy(
    field: str, clips: Sequence[Labelled], groups: Groups, populations: Mapping[str, int] | None
) -> FieldAccuracy:
    said = [clip for clip in clips if clip.labels[field] is not None]

    def share(count: Callable[[Value, Value], tuple[int, int]]) -> Share | None:
        rows: dict[str, list[tuple[int, int]]] = {}
        for clip in clips:
            counts = field in clip.values and clip.labels[field] is not None
            row = count(clip.values[field], clip.labels[field]) if counts else (0, 0)
            rows.setdefault(clip.stratum if populations else "", []).append(row)
        sizes: Mapping[str, float] = populations or {"": math.inf}
        counts_2N = {name: np.array(found, float).T for name, found in rows.items()}
        strata = [Stratum(hits_N, tries_N, sizes[name]) for name, (hits_N, tries_N) in counts_2N.items()]
        return estimated(strata, sum(size for name, size in sizes.items() if name not in rows))

    def equal(form: Form) -> Callable[[Value, Value], tuple[int, int]]:
        return lambda answer, label: (form(answer) == form(label), 1)

    right = {reading: share(equal(form)) for reading, form in readings_of(field, groups).items()}
    return FieldAccuracy(
        field=field,
        labelled=len(said),
        unsaid=len(clips) - len(said),
        answered=sum(field in clip.values for clip in said),
        accuracy={reading: found for reading, found in right.items() if found},
        precision=share(_shared_names) if field == "characters" else None,
        recall=share(lambda answer, label: _shared_names(label, answer)) if field == "characters" else None,
    )


def _shared_names(these: Value, those: Value) -> tuple[int, int]:
    """Return the number of names that both share, and the number of these names."""
    names, others = (frozenset(value) if isinstance(value, tuple) else frozenset() for value in (these, those))
    return len(names & others), len(names)


def _in_form(form: Callable[[str], str], value: Value) -> object:
    return form(" ".join(value.casefold().split())) if isinstance(value, str) else value


def _agreement(field: str, clips: Sequence[Voices], groups: Groups) -> Agreement:
    form = list(readings_of(field, groups).values())[-1]
    answers = [[form(value) for value in clip.values()] for clip in clips]
    return Agreement(
        field=field,
        reviewers=tuple(sorted({name for clip in clips for name in clip})),
        clips=len(clips),
        equal=sum(len(set(values)) == 1 for values in answers),
        alpha=_alpha(answers),
    )


def _alpha(answers: Sequence[Sequence[object]]) -> float | None:
    """Return nominal alpha of the answers about each clip, or about a random part of them with `MOST_VALUES` values."""
    from nltk.metrics.agreement import AnnotationTask  # importing it takes a second

    values: set[object] = set()
    data: list[tuple[int, int, object]] = []
    for number, clip in enumerate(random.Random(0).sample(answers, len(answers))):
        values.update(clip)
        if len(values) > MOST_VALUES:
            break
        data += [(voice, number, value) for voice, value in enumerate(clip)]
    return float(AnnotationTask(data, missing_values=()).alpha()) if len(values) > 1 else None
