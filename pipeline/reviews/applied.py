"""Reviews applied to a dataset: reviewed values of each film's clips, captions with these values, and counts.

    reviews = load_reviews(dataset, review_path(dataset.root, config.review))
    save_published(folder, "reviewed", reviews.rows(folder, record.cast))       table `reviewed`, at each publishing
    with_reviews(read_captions(folder).values(), read_reviewed(folder))         captions as they are published

Verification, card and report read the table, so they agree with the shards despite later reviews, also on a machine
without the review file. The captioner's captions stay unchanged in the table `captions`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from pipeline.core.config import ReviewSettings
from pipeline.core.plain_text import counted, first_few
from pipeline.core.records import COPIED, Caption, Clip, Record, Reviewed, Verdict
from pipeline.core.store import TABLES, Dataset, FilmFolder, StoreError
from pipeline.reviews.decisions import (
    FIELDS,
    KEEP,
    REVIEW_FILE,
    SETTLED,
    Decision,
    LineFault,
    Reading,
    Standing,
    Value,
    in_time,
    read_decisions,
    standings,
)
from pipeline.reviews.matching import match
from prompts.tags import words_pattern

TABLE, CARRIED = "reviewed", "carried"
"""Tables of reviewed values, and of captions that better copies took over."""
MOST_NAMED = 5
"""Lines, conflicts and faults that a finding lists; the others are counted."""
BY_REVIEW_ALONE = ""
"""Source of a caption that only reviewers wrote; published as null."""


@dataclass(frozen=True)
class Reviews:
    """Content of a review file, matched to a dataset."""

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
    """Lines about films that are not in the dataset."""
    outside_cast: tuple[int, ...] = ()
    """Lines with the name of a character that is not in the dataset's cast; they are not applied."""

    def rows(self, folder: FilmFolder, cast: Sequence[str]) -> list[Reviewed]:
        """Return the reviewed values of a film's clips in their order; characters follow the order of the cast."""
        found = ((clip.clip_id, self.standings.get(clip.clip_id)) for clip in folder.read("clips", Clip))
        return [_row(clip_id, fields, cast) for clip_id, fields in found if fields]


@dataclass(frozen=True)
class ReviewCounts:
    """Counts of a review file, matched to a dataset."""

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


def review_path(root: Path, settings: ReviewSettings) -> Path:
    """Return the path of the review file of the dataset in `root`."""
    return Path(settings.file) if settings.file else root / REVIEW_FILE


def load_reviews(dataset: Dataset, path: Path) -> Reviews:
    """Read a review file and match it to the clips of a dataset. Raises UserError if a file cannot be read."""
    reading, record = read_decisions(path), dataset.record
    if not reading.decisions:
        return Reviews(faults=reading.faults)
    return matched_reviews(reading, film_clips(dataset), record.cast)


def film_clips(dataset: Dataset) -> dict[str, list[Clip]]:
    """Return the clips of each film of a dataset, by the film's content hash."""
    return {entry.sha256: dataset.folder(entry.film_id).read_if_made("clips", Clip) for entry in dataset.record.films}


def matched_reviews(reading: Reading, films: Mapping[str, Sequence[Clip]], cast: Collection[str]) -> Reviews:
    """Match the content of a review file to clips, by their film's content hash; an empty cast accepts any name."""
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
    """Return the published reviewed values of a film, by clip id. Raises StoreError."""
    return {row.clip_id: row for row in folder.read_if_made(TABLE, Reviewed)}


def read_captions(folder: FilmFolder) -> dict[str, Caption]:
    """Return the generated captions of a film, with those of displaced copies, by clip id. Raises StoreError."""
    rows = (*folder.read_if_made("captions", Caption), *folder.read_if_made(CARRIED, Caption))
    return {row.clip_id: row for row in rows}


def save_published(folder: FilmFolder, table: str, rows: Sequence[Record]) -> bool:
    """Write `reviewed` or `carried` of a film, or remove the table without rows; return False if nothing changed."""
    path = folder.table_path(table)
    if not rows:
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed
    try:
        if folder.read_if_made(table, TABLES[table]) == rows:
            return False
    except StoreError:
        pass  # damaged: it is written again
    folder.write(table, rows)
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


def carried_over(
    reviewed: Mapping[str, Sequence[Reviewed]], verdicts: Mapping[str, Sequence[Verdict]]
) -> dict[str, list[Reviewed]]:
    """Return reviewed values by film, with those of each near-duplicate also at the clip that is kept instead.

    A value of the kept clip's own review counts more, and whether to keep a clip is not carried over.
    """
    rows = {row.clip_id: row for each in reviewed.values() for row in each}
    film_of = {verdict.clip_id: film for film, each in verdicts.items() for verdict in each}
    for verdict in (verdict for each in verdicts.values() for verdict in each):
        review, kept = rows.get(verdict.clip_id), verdict.duplicate_of
        if verdict.keep or review is None or kept not in film_of:  # its film may be removed, or cut again
            continue
        own = rows.get(kept) or Reviewed(clip_id=kept, fields=(), keep=None)
        values = {name: getattr(review, name) for name in review.fields if name not in own.fields}
        if values:
            rows[kept] = own.model_copy(update={**values, "fields": tuple(sorted({*own.fields, *values}))})
    found: dict[str, list[Reviewed]] = {film: [] for film in verdicts}
    for clip_id in sorted(rows.keys() & film_of.keys()):
        found[film_of[clip_id]].append(rows[clip_id])
    return found


def captions_of_copies(
    captions: Mapping[str, Sequence[Caption]], verdicts: Mapping[str, Sequence[Verdict]]
) -> dict[str, list[Caption]]:
    """Return, by film, a model's caption for each kept clip without one, from a near-duplicate that it displaces."""
    rows = {row.clip_id: row for each in captions.values() for row in each if row.by_model}
    film_of = {row.clip_id: film for film, each in verdicts.items() for row in each if row.keep}
    found: dict[str, dict[str, Caption]] = {film: {} for film in verdicts}
    for verdict in (verdict for each in verdicts.values() for verdict in each):
        caption, kept = rows.get(verdict.clip_id), verdict.duplicate_of
        if caption and kept in film_of and kept not in rows:
            flags = (*caption.flags, f"{COPIED}{verdict.clip_id}")
            copied = caption.model_copy(update={"clip_id": kept, "flags": flags})
            found[film_of[kept]].setdefault(kept, copied)
    return {film: list(each.values()) for film, each in found.items()}


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
    """Return False if a value has a character outside the cast; an actor may also be a noun."""
    if not cast or value is None:
        return True
    if field == "characters":
        return isinstance(value, tuple) and set(value) <= set(cast)
    if field == "actor":
        return value in cast or re.fullmatch(words_pattern("S"), str(value)) is not None
    return True


def count_reviews(reviews: Reviews) -> ReviewCounts:
    """Count reviews, and put conflicts and lines that are not applied into words."""
    found = [standing for fields in reviews.standings.values() for standing in fields.values()]
    fields = Counter(name for names in reviews.standings.values() for name in names)
    voices = Counter(name for each in found for name in {*each.voices, each.reviewer.removeprefix(SETTLED)})
    return ReviewCounts(
        clips=len(reviews.standings),
        fields={name: fields[name] for name in FIELDS if fields[name]},
        reviewers=dict(sorted(voices.items(), key=lambda item: (-item[1], item[0]))),
        findings=tuple(_findings(reviews)),
        remarks=(f"{counted(later, 'decision')} about parts of films after the last clip, which were not built",)
        if (later := len(reviews.later))
        else (),
    )


def _findings(reviews: Reviews) -> Iterator[str]:
    conflicts = [
        f"{name} of {clip_id} ({', '.join(standing.voices)})"
        for clip_id, fields in reviews.standings.items()
        for name, standing in fields.items()
        if standing.conflict
    ]
    if conflicts:
        yield f"{counted(len(conflicts), 'conflict')} between reviewers: {first_few(conflicts, MOST_NAMED)}"
    for lines, what in (
        (reviews.outside_cast, "a character outside the cast"),
        (reviews.unmatched, "a span of a film that no clip shares"),
        (reviews.foreign, "a film that is not in this dataset"),
    ):
        if lines:
            yield f"{counted(len(lines), 'decision')} about {what}: line {first_few(list(map(str, lines)), MOST_NAMED)}"
    if reviews.faults:
        faults = [f"line {fault.line} ({fault.reason})" for fault in reviews.faults]
        yield f"{counted(len(faults), 'line')} that cannot be read as a decision: {first_few(faults, MOST_NAMED)}"
