"""Agreement of reviewers: share of clips with one answer, and Krippendorff's alpha, for each field.

Alpha is 1 where reviewers agree always and 0 where they agree as often as by chance; it takes any number of reviewers,
and clips that some of them did not see (Krippendorff, Content Analysis, chapter 12). Answers count as equal or not, in
the widest reading of the field; "cannot be said" is an answer as well.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import krippendorff
import numpy as np

from pipeline.core.records import Record
from pipeline.reviews.audit.readings import SCORED, Groups, readings_of
from pipeline.reviews.decisions import Value

MOST_CELLS = 1 << 24
"""Most cells, clips times values squared, of the table that the package makes: 128 MB."""

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
    answers = _fitting(answers)
    values = {value: number for number, value in enumerate(dict.fromkeys(one for clip in answers for one in clip))}
    if len(values) < 2:
        return None
    counts = np.zeros((len(answers), len(values)), int)
    for row, clip in zip(counts, answers, strict=True):
        for value in clip:
            row[values[value]] += 1
    return float(krippendorff.alpha(value_counts=counts, level_of_measurement="nominal"))


def _fitting(answers: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    """Return the answers, or as many as the table holds, drawn at random but always the same."""
    drawn = random.Random(0).sample(answers, len(answers))
    values: set[object] = set()
    for count, clip in enumerate(drawn):
        values.update(clip)
        if (count + 1) * len(values) ** 2 > MOST_CELLS:
            return drawn[:count]
    return answers
