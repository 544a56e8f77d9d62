"""Table of clips with everything known about each clip, one row of plain values per clip.

    for row in clip_rows(dataset, seen_clips(dataset)):
        row.clip_id, row.level, row.reasons

The command line prints it without pandas; `pipeline.notebook` makes it a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core.dialogue import SpokenLine
from pipeline.core.measurements import QUALITY, Bars, Box, CameraDirection, CameraKind
from pipeline.core.records import Record
from pipeline.core.store import Dataset
from pipeline.publish.samples import EPISODE, Split
from pipeline.publish.seen_clips import ClipFate, SeenClip, read_index_if_made
from pipeline.publish.shards import Shard
from pipeline.reviews.casting.figures import figure_counts
from pipeline.reviews.decisions import KEEP
from prompts.tags import TAGS


@dataclass(frozen=True, slots=True)
class ClipRow:
    """Row of a clip. None means unknown; an empty tuple means that there is none."""

    clip_id: str
    film_id: str
    film: str
    """Name of the film's file."""
    series: str | None
    season: int | None
    episode: int | None
    language: str | None
    """Language of the film's speech."""
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
    """Hash of the clip's file."""
    split: Split | None
    shard: str | None
    """Path below `shards/`, by the index; None for a clip that is not kept."""
    verdict: ClipFate
    reasons: tuple[str, ...]
    overruled: tuple[str, ...]
    """Reasons to drop the clip that a review overrules."""
    duplicate_of: str | None
    level: int | None
    scope_px: float | None
    camera_px: float | None
    camera_kind: CameraKind | None
    camera_direction: CameraDirection | None
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
    sharpness: float | None
    blockiness: float | None
    banding: float | None
    subtitle_lines: int | None
    text_boxes: tuple[str, ...] | None
    """Boxes as `left,top,right,bottom` in pixels; `logo_boxes` as well."""
    logo_boxes: tuple[str, ...] | None
    figures: int | None
    """Most figures on one of its embedded pictures; None if no detector looked for them."""
    bars: str | None
    """Widths of the black bars as `left,top,right,bottom`."""
    dialogue: tuple[str, ...] | None
    """Lines heard in the clip, as `0.250-1.500 [ja] Ponyo: Sosuke!` in seconds from its start."""
    sound_language: str | None
    """Language of the sound track of the clip; this and the rest are None without sound."""
    loudness_lufs: float | None
    silent_share: float | None
    speech_share: float | None


_OF_CLIP = {"clip_id", "film_id", "scene", "index", "start_seconds", "end_seconds", "overlap_seconds", "frames"}
_OF_MOTION = {"scope_px", "camera_px", "camera_kind", "camera_direction", "unique_frames"}
_OF_ANSWER = {*TAGS, "characters", "actor", "others", "sentence"}
_OF_LOOKS = {"light", "contrast", "dark_share", "still_share", "two_groups", *QUALITY}
_OF_SOUND = {"loudness_lufs", "silent_share", "speech_share"}
_OF_TEXT = {"text_share", "text_lines", "subtitle_lines"}


def clip_rows(dataset: Dataset, clips: Sequence[SeenClip]) -> list[ClipRow]:
    """Return a row for each of these clips, in their order: film by film. Raises UserError if a file is unreadable."""
    names = {film.film_id: film.name for film in dataset.record.films}
    shard_of = _shards(dataset)
    of_film = {
        film_id: {"film": names[film_id], **_fields(dataset.folder(film_id).film_if_made, EPISODE)}
        for film_id in {seen.clip.film_id for seen in clips}
    }
    figures = {film_id: figure_counts(dataset.folder(film_id)) for film_id in of_film}
    return [
        _row(seen, of_film[film_id], shard_of(seen), figures[film_id].get(seen.clip.clip_id))
        for seen in clips
        for film_id in [seen.clip.film_id]
    ]


def _row(seen: SeenClip, of_film: dict[str, Any], shard: str | None, figures: int | None) -> ClipRow:
    return ClipRow(
        figures=figures,
        **_fields(seen.clip, _OF_CLIP | {"width", "height", "sha256"}),
        **_fields(seen.motion, _OF_MOTION),
        **_fields(seen.answer, _OF_ANSWER),
        **_fields(seen.looks, _OF_LOOKS | _OF_TEXT),
        text_boxes=_sides(seen.looks.text_boxes) if seen.looks else None,
        logo_boxes=_sides(seen.looks.logo_boxes) if seen.looks else None,
        bars=_text_of(seen.looks.bars) if seen.looks and seen.looks.bars else None,
        dialogue=None if seen.dialogue is None else tuple(map(_spoken, seen.dialogue)),
        sound_language=seen.sound.language if seen.sound else None,
        **_fields(seen.sound, _OF_SOUND),
        **of_film,
        fps=float(seen.clip.fps),
        split=seen.split,
        shard=shard,
        verdict=seen.fate,
        reasons=seen.reasons,
        overruled=seen.overruled,
        duplicate_of=seen.verdict.duplicate_of if seen.verdict else None,
        level=seen.level,
        text=seen.text,
        captioner=(seen.caption.source or None) if seen.caption else None,
        flags=seen.flags,
        fault=seen.caption.fault if seen.caption else None,
        reviewed=_reviewed(seen),
    )


def _fields(record: Record | None, names: Iterable[str]) -> dict[str, Any]:
    """Return these fields of a record; None for all of them if there is no record."""
    return {name: getattr(record, name) if record else None for name in names}


def _sides(boxes: Iterable[Box] | None) -> tuple[str, ...] | None:
    return None if boxes is None else tuple(map(_text_of, boxes))


def _spoken(line: SpokenLine) -> str:
    language = f"[{line.language}] " if line.language else ""
    return f"{line.start_seconds:.3f}-{line.end_seconds:.3f} {language}{line.said}"


def _text_of(sides: Box | Bars) -> str:
    return f"{sides.left},{sides.top},{sides.right},{sides.bottom}"


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
