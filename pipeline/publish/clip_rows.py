"""Table of clips with everything known about each: a row of plain values a clip.

    for row in clip_rows(dataset, seen_clips(dataset)):
        row.clip_id, row.level, row.reasons

The command line prints it without pandas; `pipeline.notebook` makes it a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from pipeline.core.records import Looks
from pipeline.core.store import Dataset
from pipeline.publish.samples import Split
from pipeline.publish.seen_clips import ClipFate, SeenClip, read_index_if_made
from pipeline.publish.shards import Shard
from pipeline.reviews.decisions import KEEP


@dataclass(frozen=True, slots=True)
class ClipRow:
    """Row of a clip; None: not known, an empty tuple: none."""

    clip_id: str
    film_id: str
    film: str
    """Name of the film's file."""
    scene: int
    index: int
    start_seconds: float
    end_seconds: float
    overlap_seconds: float
    frames: int
    fps: float
    width: int
    height: int
    sha256: str
    """Of the clip's file."""
    split: Split | None
    shard: str | None
    """Path below `shards/`, by the index; None for a clip that is not kept."""
    verdict: ClipFate
    reasons: tuple[str, ...]
    overruled: tuple[str, ...]
    """Reasons to drop it that a review overrules."""
    duplicate_of: str | None
    level: int | None
    scope_px: float | None
    camera_px: float | None
    unique_frames: int | None
    text: str
    """The instruction line."""
    S: str | None
    MD: str | None
    EV: str | None
    MA: str | None
    SC: int | None
    ET: int | None
    ST: int | None
    characters: tuple[str, ...] | None
    actor: str | None
    others: int | None
    sentence: str | None
    captioner: str | None
    flags: tuple[str, ...]
    fault: str | None
    """Reason that the captioner's reply is quarantined."""
    reviewed: tuple[str, ...]
    """Fields that a reviewer confirmed or corrected, `keep` among them."""
    light: float | None
    contrast: float | None
    dark_share: float | None
    still_share: float | None
    text_share: float | None
    text_lines: int | None
    two_groups: float | None


def clip_rows(dataset: Dataset, clips: Iterable[SeenClip]) -> list[ClipRow]:
    """Return a row for each of these clips, in their order: film by film.

    Raises:
        UserError: a file of the dataset cannot be read.
    """
    names = {film.film_id: film.name for film in dataset.record.films}
    shard_of = _shards(dataset)
    rows = []
    for film_id, of_film in groupby(clips, key=lambda seen: seen.clip.film_id):
        looks = {row.clip_id: row for row in dataset.folder(film_id).read_if_made("looks", Looks)}
        rows += [_row(seen, names[film_id], shard_of(seen), looks.get(seen.clip.clip_id)) for seen in of_film]
    return rows


def _row(seen: SeenClip, film: str, shard: str | None, looks: Looks | None) -> ClipRow:
    clip, motion, answer = seen.clip, seen.motion, seen.answer
    return ClipRow(
        clip_id=clip.clip_id,
        film_id=clip.film_id,
        film=film,
        scene=clip.scene,
        index=clip.index,
        start_seconds=clip.start_seconds,
        end_seconds=clip.end_seconds,
        overlap_seconds=clip.overlap_seconds,
        frames=clip.frames,
        fps=float(clip.fps),
        width=clip.width,
        height=clip.height,
        sha256=clip.sha256,
        split=seen.split,
        shard=shard,
        verdict=seen.fate,
        reasons=seen.reasons,
        overruled=seen.overruled,
        duplicate_of=seen.verdict.duplicate_of if seen.verdict else None,
        level=seen.level,
        scope_px=motion.scope_px if motion else None,
        camera_px=motion.camera_px if motion else None,
        unique_frames=motion.unique_frames if motion else None,
        text=seen.text,
        S=answer.S if answer else None,
        MD=answer.MD if answer else None,
        EV=answer.EV if answer else None,
        MA=answer.MA if answer else None,
        SC=answer.SC if answer else None,
        ET=answer.ET if answer else None,
        ST=answer.ST if answer else None,
        characters=answer.characters if answer else None,
        actor=answer.actor if answer else None,
        others=answer.others if answer else None,
        sentence=answer.sentence if answer else None,
        captioner=(seen.caption.source or None) if seen.caption else None,
        flags=seen.caption.flags if seen.caption else (),
        fault=seen.caption.fault if seen.caption else None,
        reviewed=_reviewed(seen),
        light=looks.light if looks else None,
        contrast=looks.contrast if looks else None,
        dark_share=looks.dark_share if looks else None,
        still_share=looks.still_share if looks else None,
        text_share=looks.text_share if looks else None,
        text_lines=looks.text_lines if looks else None,
        two_groups=looks.two_groups if looks else None,
    )


def _reviewed(seen: SeenClip) -> tuple[str, ...]:
    if seen.reviewed is None:
        return ()
    return (*seen.reviewed.fields, *([KEEP] if seen.reviewed.keep is not None else []))


def _shards(dataset: Dataset) -> Callable[[SeenClip], str | None]:
    """Function from a clip to the name of its shard; None for a clip that is not kept."""
    index = read_index_if_made(dataset)
    of_film: dict[tuple[str, Split | None], list[Shard]] = {}
    for shard in index.shards if index else ():
        of_film.setdefault((shard.film_id, shard.split), []).append(shard)

    def shard_of(seen: SeenClip) -> str | None:
        if seen.fate != "kept":
            return None
        shards = of_film.get((seen.clip.film_id, seen.split), ())
        # ids of a film's clips are in the order of time
        return next((one.name for one in shards if one.first_clip <= seen.clip.clip_id <= one.last_clip), None)

    return shard_of
