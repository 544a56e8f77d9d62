"""Clips to review: everything that a reviewer, a page or an audit needs about each clip of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.dialogue import Dialogue
from pipeline.core.measurements import Looks, Motion
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset, FilmEntry, FilmFolder
from pipeline.reviews.applied import film_clips, matched_reviews, read_captions, read_reviewed, with_reviews
from pipeline.reviews.decisions import Standing, read_decisions
from pipeline.stages.selection import BY_REVIEW


@dataclass(frozen=True)
class ReviewableClip:
    """Clip with the machine's caption and verdict, and the standings of its reviewed fields."""

    film_id: str
    film_name: str
    film_sha256: str
    clip_id: str
    path: Path
    """File of the clip."""
    scene: int
    index: int
    start_seconds: float
    end_seconds: float
    level: int | None
    """Motion level 1..5; None if motion was not measured."""
    scope_px: float | None
    camera: str | None
    """Kind and direction of the camera's move; None if it is undecided."""
    quality: str
    """Picture quality in words; empty if it is not measured."""
    overlays: str
    """Boxes of text and logos, and bars, in words; empty if there are none."""
    kept: bool
    """True if the clip is a sample of the dataset."""
    keep: bool | None
    """Verdict of the rules, regardless of reviews; None without a verdict."""
    reasons: tuple[str, ...]
    """Reasons of the rules to drop it."""
    flags: tuple[str, ...]
    """Reasons that the settings note instead."""
    caption: Caption | None
    """Caption of the machine, perhaps with a fault."""
    published: Caption | None
    """Caption as it was last published, reviews included."""
    dialogue: tuple[str, ...]
    """Lines heard in the clip, each after its speaker."""
    sound: Path | None
    """File of its sound; None if it was not kept."""
    standings: Mapping[str, Standing]
    """Standing of each reviewed field, `keep` among them, by field."""


def reviewable(dataset: Dataset, path: Path | None) -> list[ReviewableClip]:
    """Return all clips of a dataset, film by film and in time order, with the decisions in the file `path`, if any.

    Raises:
        UserError: the file, or a table of the dataset, cannot be read.
    """
    record = dataset.record
    clips = film_clips(dataset)
    found = matched_reviews(read_decisions(path), clips, record.cast).standings if path else {}
    films = ((film, dataset.folder(film.film_id)) for film in record.films)
    return [row for film, folder in films for row in _rows(folder, film, clips[film.sha256], found)]


def _rows(
    folder: FilmFolder, film: FilmEntry, clips: Sequence[Clip], found: Mapping[str, Mapping[str, Standing]]
) -> Iterator[ReviewableClip]:
    verdicts = {row.clip_id: row for row in folder.read_if_made("screened", Verdict)}
    verdicts |= {row.clip_id: row for row in folder.read_if_made("verdicts", Verdict)}
    motions = {row.clip_id: row for row in folder.read_if_made("motion", Motion)}
    looks = {row.clip_id: row for row in folder.read_if_made("looks", Looks)}
    captions = read_captions(folder)
    published = with_reviews(captions.values(), read_reviewed(folder))
    dialogue, sounds = Dialogue.of(folder), folder.sounds()
    for clip in sorted(clips, key=lambda clip: clip.start_seconds):
        verdict = verdicts.get(clip.clip_id)
        motion, seen = motions.get(clip.clip_id), looks.get(clip.clip_id)
        reasons = tuple(reason for reason in verdict.reasons if reason != BY_REVIEW) if verdict else ()
        yield ReviewableClip(
            **clip.model_dump(include={"film_id", "clip_id", "scene", "index", "start_seconds", "end_seconds"}),
            film_name=film.name,
            film_sha256=film.sha256,
            path=folder.clip_path(clip.clip_id),
            level=verdict.level if verdict else None,
            scope_px=motion.scope_px if motion else None,
            camera=motion.camera if motion else None,
            quality=seen.quality if seen else "",
            overlays=seen.overlays if seen else "",
            kept=bool(verdict and verdict.keep),
            keep=not reasons if verdict else None,
            reasons=reasons,
            flags=verdict.flags if verdict else (),
            caption=captions.get(clip.clip_id),
            published=published.get(clip.clip_id),
            dialogue=tuple(line.said for line in dialogue.within(clip.start_seconds, clip.end_seconds) or ()),
            sound=folder.sound_path(clip.clip_id) if clip.clip_id in sounds else None,
            standings=found.get(clip.clip_id, {}),
        )
