"""Labels of an audit: a file of people's decisions matched to clips, and the values of a data set beside them.

An audit asks about a data set as it is published, reviews included; a comparison with a file of labels asks about the
machine's answers alone. Both read the tables of captions and verdicts, and never the shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.records import Caption, Clip, Record, Verdict
from pipeline.core.store import Dataset, FilmFolder
from pipeline.reviews.applied import read_reviewed, with_reviews
from pipeline.reviews.decisions import CAPTION_FIELDS, KEEP, LineFault, Value, read_decisions
from pipeline.reviews.matching import match
from pipeline.reviews.standing import Standing, standings
from pipeline.stages.selection import BY_REVIEW

NOBODY = "nobody"
UNKNOWN = "unknown"


class LabelFile(Record):
    """Lines of a file of labels by their use."""

    faults: tuple[str, ...] = ()
    """Lines that are not decisions, each with its number and the reason."""
    foreign: int = 0
    """Decisions about films that are not in the data set."""
    unmatched: int = 0
    """Decisions about a span of film that is no clip any more."""


@dataclass(frozen=True)
class AuditedClip:
    """Clip with its values in the data set."""

    clip: Clip
    film_sha256: str
    level: int | None
    kept: bool
    """True if it is a sample of the data set."""
    machine: Mapping[str, Value]
    """Answers of the machine by field; without those that it did not give."""
    published: Mapping[str, Value]
    """Values in the data set by field, reviews included."""

    @property
    def character(self) -> str:
        """The actor, else the first character on screen."""
        names = self.published.get("characters")
        if not isinstance(names, tuple):
            return UNKNOWN
        actor = self.published.get("actor")
        return str(actor) if actor in names else next(iter(names), NOBODY)


def audited_clips(dataset: Dataset) -> list[AuditedClip]:
    """Return all clips of a data set, film by film and in time order.

    Raises:
        StoreError: a table cannot be read.
    """
    return [clip for entry in dataset.record.films for clip in _clips_of(dataset.folder(entry.film_id), entry.sha256)]


def read_labels(path: Path, clips: list[AuditedClip]) -> tuple[dict[str, dict[str, Standing]], LabelFile]:
    """Read a file of decisions: the standing of each labelled field by clip id and field, and the lines not used.

    Raises:
        UserError: the file cannot be read.
    """
    films: dict[str, list[Clip]] = {}
    for audited in clips:
        films.setdefault(audited.film_sha256, []).append(audited.clip)
    reading = read_decisions(path)
    found = match(reading.decisions, films)
    lines = LabelFile(
        faults=tuple(map(_in_words, reading.faults)), foreign=len(found.foreign), unmatched=len(found.unmatched)
    )
    return {clip_id: standings(decisions) for clip_id, decisions in found.by_clip.items()}, lines


def _clips_of(folder: FilmFolder, sha256: str) -> list[AuditedClip]:
    verdicts = {row.clip_id: row for row in folder.read_if_made("verdicts", Verdict)}
    machine = {row.clip_id: row for row in folder.read_if_made("captions", Caption)}
    published = with_reviews(machine.values(), read_reviewed(folder))
    return [
        AuditedClip(
            clip=clip,
            film_sha256=sha256,
            level=verdict.level if (verdict := verdicts.get(clip.clip_id)) else None,
            kept=verdict.keep if verdict else False,
            machine=_values(machine.get(clip.clip_id), verdict.reasons in ((), (BY_REVIEW,)) if verdict else None),
            published=_values(published.get(clip.clip_id), verdict.keep if verdict else None),
        )
        for clip in sorted(folder.read_if_made("clips", Clip), key=lambda clip: clip.start_seconds)
    ]


def _values(caption: Caption | None, keep: bool | None) -> dict[str, Value]:
    values: dict[str, Value] = {KEEP: keep}
    if caption and not caption.fault:
        values |= {field: getattr(caption, field) for field in CAPTION_FIELDS}
    return {field: value for field, value in values.items() if value is not None}


def _in_words(fault: LineFault) -> str:
    return f"line {fault.line}: {fault.reason}"
