"""Characters of reviewed clips, carried through a dataset to clips that look alike, and the clips to review next.

    found = carry_through(dataset, reviews.standings)
    found.guesses["ponyo-01234567-000012500"].confidence
    captions = captions_by_likeness(machine, found.guesses, least=0.8, cast=record.cast)

Only clips with vectors of the stage `embed` take part. Reviews always win: a reviewed clip gets no guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipeline.core.records import Caption, Clip
from pipeline.core.store import Dataset
from pipeline.publish.similar_clips import picture_vectors
from pipeline.reviews.carry import Guess, Likeness, Reviewed, carry, most_telling
from pipeline.reviews.decisions import Standing

BY_LIKENESS = "by likeness: "
"""Start of the flag of a caption with the characters of reviewed clips that look alike; the confidence follows."""
NEXT = 100
"""Number of clips proposed for review."""


@dataclass(frozen=True)
class Carried:
    """Guesses by clip id, and the ids of the clips to review next, the most telling first."""

    guesses: Mapping[str, Guess] = field(default_factory=dict)
    next_clips: Sequence[str] = ()


def carry_through(dataset: Dataset, standings: Mapping[str, Mapping[str, Standing]], most: int = NEXT) -> Carried:
    """Carry reviewed characters through a dataset; nothing without vectors.

    Args:
        dataset: the dataset.
        standings: standing of each reviewed field, by clip id and field.
        most: number of clips to propose for review.

    Raises:
        UserError: films were embedded by several networks, or a table cannot be read.
    """
    vectors = picture_vectors(dataset)
    if not vectors.clip_ids:
        return Carried()
    found = [
        (film, clip) for film, folder in enumerate(dataset.folders()) for clip in folder.read_if_made("clips", Clip)
    ]
    clips = {clip.clip_id: (film, clip) for film, clip in found}
    rows = [clips[clip_id] for clip_id in vectors.clip_ids]
    likeness = Likeness.of(
        np.concatenate(vectors.parts),
        [film for film, _ in rows],
        [clip.scene for _, clip in rows],
        [(clip.start_seconds + clip.end_seconds) / 2 for _, clip in rows],
    )
    reviewed = {
        row: review for row, clip_id in enumerate(vectors.clip_ids) if (review := _reviewed(standings.get(clip_id, {})))
    }
    guesses = carry(likeness, reviewed)
    doubt_C = np.array([1 - guesses[row].confidence if row in guesses else 1.0 for row in range(len(rows))])
    seen = {row for row, clip_id in enumerate(vectors.clip_ids) if "characters" in standings.get(clip_id, {})}
    return Carried(
        {vectors.clip_ids[row]: guess for row, guess in guesses.items() if row not in seen},
        [vectors.clip_ids[row] for row in most_telling(likeness, sorted(seen), most, doubt_C)],
    )


def captions_by_likeness(
    captions: Iterable[Caption], guesses: Mapping[str, Guess], least: float, cast: Sequence[str]
) -> list[Caption]:
    """Return the captions that name no characters, with those of a guess of this confidence in the cast's order."""
    found = []
    for caption in captions:
        guess = guesses.get(caption.clip_id)
        if guess and guess.confidence >= least and caption.characters is None and caption.fault is None:
            update = {
                "characters": tuple(sorted(guess.characters, key=cast.index if cast else None)),
                "flags": (*caption.flags, f"{BY_LIKENESS}{guess.confidence:.0%} sure"),
                **({"actor": guess.actor} if caption.actor is None and caption.S is None else {}),
            }
            found.append(caption.model_copy(update=update))
    return found


def _reviewed(fields: Mapping[str, Standing]) -> Reviewed | None:
    """Return the reviewed characters of a clip; None without, or if nobody can tell them."""
    if "characters" not in fields or not isinstance(names := fields["characters"].value, tuple):
        return None
    actor = fields["actor"].value if "actor" in fields else None
    return Reviewed(names, actor if isinstance(actor, str) else None)
