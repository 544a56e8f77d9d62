"""Scores of labelled fields: accuracy of a dataset's values against labels, and agreement between reviewers.

A null in the dataset is no answer, so it is neither right nor wrong. A null in the label says that nobody can tell, so
the clip counts nowhere else. Two values are equal in one of three readings, each wider than the one before it:

    exact        `runs`, `run` and `dash` are three motions; names on screen are a set
    lemma        `runs` is `run`: the words' dictionary form, without articles; an adverb is its adjective
    group        `dash` is `run` if `vocabulary.toml` publishes them as one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pipeline.core.records import Record
from pipeline.reviews.decisions import FIELDS, Standing, Value, comparable
from pipeline.reviews.intervals import Share, estimated
from prompts.words import adverb, lemmas

SCORED: Final = tuple(field for field in FIELDS if field != "sentence")
"""Fields with an answer that is right or wrong."""

Groups = Mapping[str, Mapping[str, str]]
"""Published value of the values that are replaced, by tag: `Vocabulary.published`."""
Form = Callable[[Value], object]
Count = Callable[[Value, Value], tuple[int, int]]
"""Hits and tries of an answer and its label."""
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
    """Answers of the dataset by field; null or missing without an answer."""
    labels: Mapping[str, Standing]
    """Standing of each labelled field, whose value counts as true; null if nobody can tell."""
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
    shares: dict[str, Share]
    """Share of right answers by reading, the strictest first; for characters also `precision` and `recall` of names."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rows of a table: field, reading, share of right answers, interval, answered, labelled and unsaid clips."""
        counts = (f"{self.answered:,}", f"{self.labelled:,}", f"{self.unsaid:,}")
        return [
            (self.field, name, f"{share.share:.1%}", f"{100 * share.low:.1f} to {share.high:.1%}", *counts)
            for name, share in self.shares.items()
        ] or [(self.field, "-", "-", "no answers", *counts)]


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


def accuracies(clips: Sequence[Labelled], groups: Groups, populations: Mapping[str, float]) -> list[FieldAccuracy]:
    """Return the accuracy of each field that has a label.

    `populations` are the dataset's clips in each stratum, as `estimated` takes them.
    """
    labelled = ((field, [clip for clip in clips if field in clip.labels]) for field in SCORED)
    return [_accuracy(field, found, groups, populations) for field, found in labelled if found]


def agreements(clips: Sequence[Labelled], groups: Groups) -> list[Agreement]:
    """Return the agreement about each field that two reviewers have answered on a clip."""
    voices = {field: [clip.labels[field].voices for clip in clips if field in clip.labels] for field in SCORED}
    shared = {field: [clip for clip in found if len(clip) > 1] for field, found in voices.items()}
    return [_agreement(field, found, groups) for field, found in shared.items() if found]


def _accuracy(field: str, clips: Sequence[Labelled], groups: Groups, populations: Mapping[str, float]) -> FieldAccuracy:
    pairs = [(clip.values.get(field), clip.labels[field].value) for clip in clips]
    said = [answer for answer, label in pairs if label is not None]
    counts: dict[str, Count] = {name: partial(_equal, form) for name, form in readings_of(field, groups).items()}
    if field == "characters":
        counts |= {"precision": _shared_names, "recall": lambda answer, label: _shared_names(label, answer)}
    shares: dict[str, Share] = {}
    for name, count in counts.items():
        counts_N2 = [(0, 0) if answer is None or label is None else count(answer, label) for answer, label in pairs]
        if share := estimated([clip.stratum for clip in clips], counts_N2, populations):
            shares[name] = share
    return FieldAccuracy(
        field=field,
        labelled=len(said),
        unsaid=len(clips) - len(said),
        answered=sum(answer is not None for answer in said),
        shares=shares,
    )


def _equal(form: Form, answer: Value, label: Value) -> tuple[int, int]:
    return int(form(answer) == form(label)), 1


def _shared_names(these: Value, those: Value) -> tuple[int, int]:
    """Return the number of names that both share, and the number of these names."""
    names, others = (frozenset(value) if isinstance(value, tuple) else frozenset() for value in (these, those))
    return len(names & others), len(names)


def _in_form(form: Callable[[str], str], value: Value) -> object:
    return form(" ".join(value.casefold().split())) if isinstance(value, str) else value


def _agreement(field: str, clips: Sequence[Mapping[str, Value]], groups: Groups) -> Agreement:
    from nltk.metrics.agreement import AnnotationTask  # importing it takes a second

    form = list(readings_of(field, groups).values())[-1]
    answers = [(name, number, form(value)) for number, clip in enumerate(clips) for name, value in clip.items()]
    differ = len({value for _, _, value in answers}) > 1
    return Agreement(
        field=field,
        reviewers=tuple(sorted({name for name, _, _ in answers})),
        clips=len(clips),
        equal=sum(len({form(value) for value in clip.values()}) == 1 for clip in clips),
        alpha=float(AnnotationTask(answers, missing_values=()).alpha()) if differ else None,
    )
