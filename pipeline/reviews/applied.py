"""Reviews applied to a data set: the reviewed values of each film's clips, and captions with these values.

    reviews = load_reviews(dataset, review_path(dataset.root, config.review))
    save_reviewed(folder, reviews.rows(folder, record.cast))                    table `reviewed`, at each publishing
    with_reviews(folder.read("captions", Caption), read_reviewed(folder))       captions as they are published

The table is what verification, card and report read, so they agree with the shards whatever was reviewed since, and on
a machine without the review file. The captions of the machine stay as they are in their own table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from pipeline.core.config import ReviewSettings
from pipeline.core.records import Caption, Clip, Reviewed
from pipeline.core.store import Dataset, FilmFolder, StoreError
from pipeline.reviews.decisions import KEEP, REVIEW_FILE, Decision, LineFault, Reading, Value, read_decisions
from pipeline.reviews.matching import match
from pipeline.reviews.standing import Standing, in_time, standings
from prompts.tags import words_pattern

TABLE = "reviewed"
BY_REVIEW_ALONE = ""
"""Source of a caption that only reviewers wrote, since the machine has none; published as null."""


@dataclass(frozen=True)
class Reviews:
    """Content of a review file, matched to a data set."""

    standings: Mapping[str, Mapping[str, Standing]] = field(default_factory=dict)
    """Standing of each reviewed field, by clip id and field."""
    decisions: Mapping[str, Sequence[Decision]] = field(default_factory=dict)
    """Decisions about each clip, in the order of the file, by clip id."""
    faults: tuple[LineFault, ...] = ()
    """Lines that are not decisions."""
    unmatched: tuple[int, ...] = ()
    """Lines about a span of one of the films that no clip shares."""
    later: tuple[int, ...] = ()
    """Lines about a film after its last clip: only a part of it was built."""
    foreign: tuple[int, ...] = ()
    """Lines about films that are not in the data set."""
    outside_cast: tuple[int, ...] = ()
    """Lines with the name of a character that is not in the data set's cast; they are not applied."""

    def rows(self, folder: FilmFolder, cast: Sequence[str]) -> list[Reviewed]:
        """Return the reviewed values of a film's clips, in the order of its clips; characters in that of the cast."""
        found = ((clip.clip_id, self.standings.get(clip.clip_id)) for clip in folder.read("clips", Clip))
        return [_row(clip_id, fields, cast) for clip_id, fields in found if fields]


def review_path(root: Path, settings: ReviewSettings) -> Path:
    """Return the path of the review file of the data set in `root`."""
    return Path(settings.file) if settings.file else root / REVIEW_FILE


def load_reviews(dataset: Dataset, path: Path) -> Reviews:
    """Read a review file and match it to the clips of a data set.

    Raises:
        UserError: the file, or a table of clips, cannot be read.
    """
    reading, record = read_decisions(path), dataset.record
    if not reading.decisions:
        return Reviews(faults=reading.faults)
    films = {entry.sha256: dataset.folder(entry.film_id).read_if_made("clips", Clip) for entry in record.films}
    return matched_reviews(reading, films, record.cast)


def matched_reviews(reading: Reading, films: Mapping[str, Sequence[Clip]], cast: Collection[str]) -> Reviews:
    """Match the content of a review file.

    Args:
        reading: the content.
        films: clips of each film of the data set, by the film's content hash.
        cast: names of the characters of the data set; empty: any name is accepted.
    """
    matches = match(reading.decisions, films)
    ends = {sha256: max((clip.end_seconds for clip in clips), default=inf) for sha256, clips in films.items()}
    later = {decision for decision in matches.unmatched if decision.start_seconds >= ends[decision.film_sha256]}
    return Reviews(
        standings={
            clip_id: fields
            for clip_id, decisions in matches.by_clip.items()
            if (fields := applied_standings(decisions, cast))
        },
        decisions=matches.by_clip,
        faults=reading.faults,
        unmatched=reading.lines_of(decision for decision in matches.unmatched if decision not in later),
        later=reading.lines_of(decision for decision in matches.unmatched if decision in later),
        foreign=reading.lines_of(matches.foreign),
        outside_cast=outside_cast(reading, films, cast),
    )


def outside_cast(reading: Reading, films: Collection[str], cast: Collection[str]) -> tuple[int, ...]:
    """Return the lines with the name of a character outside the cast, about films with these content hashes.

    A decision that its reviewer has taken back or replaced counts no more.
    """
    last = {
        (each.reviewer, each.film_sha256, each.start_seconds, each.end_seconds, each.field): each
        for each in in_time(reading.decisions)
    }
    outside = (
        decision
        for decision in last.values()
        if decision.film_sha256 in films and not is_in_cast(decision.field, decision.value, cast)
    )
    return tuple(sorted(reading.lines_of(outside)))


def read_reviewed(folder: FilmFolder) -> dict[str, Reviewed]:
    """Return the reviewed values that were published of a film, by clip id.

    Raises:
        StoreError: the table cannot be read.
    """
    return {row.clip_id: row for row in folder.read_if_made(TABLE, Reviewed)}


def save_reviewed(folder: FilmFolder, rows: Sequence[Reviewed]) -> bool:
    """Write the reviewed values of a film, or remove their table if there are none; return False if nothing changed."""
    path = folder.table_path(TABLE)
    if not rows:
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed
    try:
        if folder.read_if_made(TABLE, Reviewed) == rows:
            return False
    except StoreError:
        pass  # damaged: it is written again
    folder.write(TABLE, rows)
    return True


def with_reviews(captions: Iterable[Caption], reviewed: Mapping[str, Reviewed]) -> dict[str, Caption]:
    """Return captions by clip id, with the reviewed values in place of the machine's.

    A clip whose caption has a fault, or that has none, gets one from its review.
    """
    made = {caption.clip_id: caption for caption in captions}
    for clip_id, review in reviewed.items():
        if review.fields:
            made[clip_id] = _reviewed_caption(made.get(clip_id), review)
    return made


def _reviewed_caption(caption: Caption | None, review: Reviewed) -> Caption:
    if caption is None:
        caption = Caption(clip_id=review.clip_id, source=BY_REVIEW_ALONE)
    elif caption.fault:
        caption = Caption(clip_id=review.clip_id, source=caption.source, flags=caption.flags)
    made = caption.model_copy(update={name: getattr(review, name) for name in review.fields})
    if "actor" in review.fields or made.actor is None or made.actor in (made.characters or ()):
        return made
    # the actor is one of the characters, or the noun in S: a review of these changes it too
    return made.model_copy(update={"actor": made.S})


def _row(clip_id: str, fields: Mapping[str, Standing], cast: Sequence[str]) -> Reviewed:
    values = {name: standing.value for name, standing in fields.items()}
    if isinstance(names := values.get("characters"), tuple) and cast:
        values["characters"] = tuple(sorted(names, key=cast.index))
    return Reviewed.model_validate(
        {KEEP: None, **values, "clip_id": clip_id, "fields": tuple(sorted(values.keys() - {KEEP}))}
    )


def applied_standings(decisions: Iterable[Decision], cast: Collection[str]) -> dict[str, Standing]:
    """Return the standing of each reviewed field of a clip; a name outside the cast leaves its field unreviewed."""
    found = standings(decisions)
    return {field: standing for field, standing in found.items() if is_in_cast(field, standing.value, cast)}


def is_in_cast(field: str, value: Value, cast: Collection[str]) -> bool:
    """Return False if a character outside the cast is named; an actor may be a noun as well."""
    if not cast or value is None:
        return True
    if field == "characters":
        return isinstance(value, tuple) and set(value) <= set(cast)
    if field == "actor":
        return value in cast or re.fullmatch(words_pattern("S"), str(value)) is not None
    return True
