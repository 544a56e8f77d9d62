"""Agreement of reviewers: share of clips with one answer, and Krippendorff's alpha, for each field.

Alpha is 1 where reviewers agree always and 0 where they agree as often as by chance; it takes any number of reviewers,
and clips that some of them did not see (Krippendorff, Content Analysis, chapter 12). Answers count as equal or not, in
the widest reading of the field; "cannot be said" is an answer as well.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pipeline.core.records import Record
from pipeline.reviews.audit.readings import SCORED, Groups, readings_of
from pipeline.reviews.decisions import Value

MOST_VALUES = 1000
"""Most different values of which NLTK computes alpha, which takes the square of their number."""

Voices = Mapping[str, Value]
"""Value by reviewer."""


class Agreement(Record):
    """Agreement about one field."""

    field: str
    reviewers: tuple[str, ...]
    clips: int
    """Clips with an answer of two reviewers or more."""
    equal: int
    """Clips whose answers are all equal."""
    alpha: float | None
    """Krippendorff's alpha, of very many clips or values from a random part; null: undefined, all answers are equal."""


def agreements(voices: Sequence[Mapping[str, Voices]], groups: Groups) -> list[Agreement]:
    """Return the agreement about each field that two reviewers answered for some clip.

    Args:
        voices: answers about each clip, by field and reviewer.
        groups: values that are published as one.
    """
    found = []
    for field in SCORED:
        form = list(readings_of(field, groups).values())[-1]
        shared = [
            {name: form(value) for name, value in clip[field].items()}
            for clip in voices
            if len(clip.get(field, {})) > 1
        ]
        if shared:
            found.append(
                Agreement(
                    field=field,
                    reviewers=tuple(sorted({name for clip in shared for name in clip})),
                    clips=len(shared),
                    equal=sum(len(set(clip.values())) == 1 for clip in shared),
                    alpha=_alpha([list(clip.values()) for clip in shared]),
                )
            )
    return found


def _alpha(answers: Sequence[Sequence[object]]) -> float | None:
    """Return nominal alpha of the answers about each clip, two or more a clip."""
    from nltk.metrics.agreement import AnnotationTask  # importing it takes a second

    answers = _fitting(answers)
    if len({value for clip in answers for value in clip}) < 2:
        return None
    data = [(voice, number, value) for number, clip in enumerate(answers) for voice, value in enumerate(clip)]
    return float(AnnotationTask(data, missing_values=()).alpha())


def _fitting(answers: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    """Return the answers, or as many as have `MOST_VALUES` values, drawn at random but always the same."""
    drawn = random.Random(0).sample(answers, len(answers))
    values: set[object] = set()
    for count, clip in enumerate(drawn):
        values.update(clip)
        if len(values) > MOST_VALUES:
            return drawn[:count]
    return answers
