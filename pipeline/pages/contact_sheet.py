"""Contact sheets of clips: rows and thumbnails for the report, and HTML for the cell of a notebook.

The report's script (`report.js`) reads a row of plain values and a small JPEG for every clip; its `COLUMNS` name the
values of `_row` in this order. Jupyter calls `_repr_html_` to show an object, so we need none of its packages.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import cv2

from pipeline.core.plain_text import printable
from pipeline.core.progress import Progress
from pipeline.core.records import RecordError
from pipeline.core.store import Dataset
from pipeline.pages.summary import Summary
from pipeline.publish.clip_rows import ClipRow
from pipeline.publish.samples import instruction_of
from pipeline.publish.seen_clips import SeenClip
from pipeline.stages.selection import copy_rank, is_better
from pipeline.video.clip_files import first_frame
from prompts.tags import TAGS

PICTURE_WIDTH = 168
JPEG_QUALITY = 45
"""Quality of thumbnails: about 2.4 KB at 168 pixels, sharp enough to judge a picture; 20,000 of them still load."""
PICTURE_TYPE = "image/jpeg"
_THREADS = 4
_TILE = f"display:inline-block;width:{PICTURE_WIDTH}px;margin:4px;vertical-align:top;font-size:11px;line-height:1.3"


def sheet_data(summary: Summary, alike: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Data of the contact sheet, and of the pairs of clips alike in content (by id), as JSON values."""
    clips, reasons, characters = summary.clips, reason_numbers(summary), character_numbers(summary)
    better = better_copies(summary)
    rows = [
        [*_row(number, clip, reasons, characters), clip.clip.clip_id in better]
        for number, film in enumerate(summary.films)
        for clip in film.clips
    ]
    return {
        "films": [{"id": seen.film.film_id, "name": seen.film.name} for seen in summary.films],
        "reasons": list(reasons),
        "characters": list(characters),
        "aspect": clips[0].clip.height / clips[0].clip.width if clips else 2 / 3,
        "pictureType": PICTURE_TYPE,
        "clips": rows,
        **({"alike": _places(clips, alike)} if alike else {}),
    }


def _places(clips: Sequence[SeenClip], pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
    places = {seen.clip.clip_id: place for place, seen in enumerate(clips)}
    return [[places[clip_id] for clip_id in pair] for pair in pairs]


def reason_numbers(summary: Summary) -> dict[str, int]:
    """The number of each reason against a clip on the page."""
    return _numbered(reason for clip in summary.clips for reason in clip.reasons)


def character_numbers(summary: Summary) -> dict[str, int]:
    """The number of each character on the page: the cast in order, then other names in captions."""
    captions = [clip.caption for clip in summary.clips if clip.caption]
    return _numbered([*summary.record.cast, *(name for caption in captions for name in caption.characters or ())])


def better_copies(summary: Summary) -> set[str]:
    """Ids of the dropped clips that are better copies than the clips that they repeat, and have, or get, a caption."""
    ranks = {
        seen.clip.clip_id: copy_rank(seen.clip, seen.looks, film.film.display_height)
        for film in summary.films
        for seen in film.clips
    }
    captions = {seen.clip.clip_id: seen.caption for seen in summary.clips if seen.caption and not seen.caption.fault}
    repeats = {row.clip_id: row.duplicate_of for seen in summary.clips if (row := seen.verdict) and not row.keep}
    return {
        clip_id
        for clip_id, first in repeats.items()
        if first in ranks
        and is_better(ranks[clip_id], ranks[first])
        and (clip_id in captions or ((kept := captions.get(first)) and kept.by_model))
    }


def thumbnails(dataset: Dataset, summary: Summary, threads: int, progress: Progress) -> list[str]:
    """The first frame of every clip as base64 JPEG, in the order of `summary.clips`; empty if unreadable."""
    paths = [dataset.folder(seen.clip.film_id).clip_path(seen.clip.clip_id) for seen in summary.clips]
    heights = [max(2, round(PICTURE_WIDTH * seen.clip.height / seen.clip.width)) for seen in summary.clips]
    with ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
        pictures = []
        for picture in pool.map(thumbnail, paths, heights):
            pictures.append(picture)
            progress(len(pictures), len(paths))
        return pictures


def thumbnail(path: Path, height: int) -> str:
    """Return the first frame of a clip as base64 JPEG, `PICTURE_WIDTH` wide; empty if unreadable."""
    try:
        picture_HWC = first_frame(path, PICTURE_WIDTH, height)
    except RecordError:
        return ""  # the page shows a grey card instead
    quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
    _, content = cv2.imencode(".jpg", picture_HWC, quality)
    return base64.b64encode(content.tobytes()).decode("ascii")


@dataclass(frozen=True)
class Html:
    """Piece of HTML that a notebook shows; elsewhere, its text."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def playing_clip(row: ClipRow, content: bytes) -> Html:
    """Return a clip, the content of an MP4, as a video in a loop, with all known facts."""
    video = base64.b64encode(content).decode("ascii")
    lines = [*_facts(row), *map(printable, filter(None, (row.sentence, *(row.dialogue or ()))))]
    said = "".join(f"<div>{escape(line)}</div>" for line in lines)
    source = f'<source type="video/mp4" src="data:video/mp4;base64,{video}">'
    return Html(f"<div><video controls loop autoplay muted playsinline>{source}</video>{said}</div>", "\n".join(lines))


def sheet_of_clips(rows: Sequence[ClipRow], paths: Iterable[Path], left_out: int) -> Html:
    """Return the first frames of clips with their captions, and a remark on the number of clips left out."""
    heights = [max(2, round(PICTURE_WIDTH * row.height / row.width)) for row in rows]
    with ThreadPoolExecutor(_THREADS) as pool:
        pictures = list(pool.map(thumbnail, paths, heights))
    tiles = [_tile(row, picture) for row, picture in zip(rows, pictures, strict=True)]
    more = f"<div>and {left_out:,} more; name fewer rows, or a larger limit</div>" if left_out else ""
    text = "\n".join("  ".join(_facts(row)) for row in rows)
    return Html(f"<div>{''.join(tiles)}{more}</div>", text)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _row(film: int, seen: SeenClip, reasons: Mapping[str, int], characters: Mapping[str, int]) -> list[Any]:
    clip, caption = seen.clip, seen.caption
    names = caption.characters if caption else None
    return [
        film,
        clip.clip_id.removeprefix(f"{clip.film_id}-"),
        clip.scene,
        clip.index,
        round(clip.start_seconds, 3),
        round(clip.end_seconds, 3),
        seen.level,
        None if seen.motion is None else round(seen.motion.scope_px, 3),
        None if seen.motion is None else seen.motion.camera,
        seen.fate,
        [reasons[reason] for reason in seen.reasons],
        seen.verdict.duplicate_of if seen.verdict else None,
        None if names is None else [characters[name] for name in names],
        (instruction_of(caption) or None) if caption else None,
        _tags(seen),
        seen.split if seen.fate == "kept" else None,
        _review(seen),
        (seen.looks and seen.looks.quality) or None,
        (seen.looks and seen.looks.overlays) or None,
        None if seen.dialogue is None else " · ".join(line.said for line in seen.dialogue),
        seen.sound and seen.sound.facts,
    ]


def _review(seen: SeenClip) -> str | None:
    """Reviewed and generated values, such as `MD walk (machine: run) · S girl (confirmed) · dropped`."""
    review, machine = seen.reviewed, seen.machine
    if review is None:
        return None
    parts = [
        f"{name} {_said(getattr(review, name))} ({_machine_said(getattr(machine, name, None), getattr(review, name))})"
        for name in review.fields
    ]
    if review.keep is not None:
        against = f" against {', '.join(seen.overruled)}" if seen.overruled else ""
        parts.append(f"kept{against}" if review.keep else "dropped")
    return " · ".join(parts)


def _machine_said(machine: Any, reviewed: Any) -> str:
    return "confirmed" if machine == reviewed and machine is not None else f"machine: {_said(machine)}"


def _said(value: Any) -> str:
    if value is None:
        return "nothing"
    return ", ".join(value) or "nobody" if isinstance(value, tuple) else str(value)


def _tags(seen: SeenClip) -> str | None:
    """The tags with a value, and the flags, as `S girl · MD run · SC 1 · logo · social alone: ...`."""
    values = ((tag, getattr(seen.caption, tag, None)) for tag in TAGS)
    given = [f"{tag} {value}" for tag, value in values if value is not None]
    return " · ".join([*given, *seen.flags]) or None


def _tile(row: ClipRow, picture: str) -> str:
    image = (
        f'<img width="{PICTURE_WIDTH}" alt="" src="data:{PICTURE_TYPE};base64,{picture}">' if picture else "no picture"
    )
    said = "<br>".join(escape(line) for line in _facts(row))
    return f'<div style="{_TILE};overflow-wrap:anywhere">{image}<br>{said}</div>'


def _facts(row: ClipRow) -> list[str]:
    level = f"level {row.level}" if row.level else "no level"
    fate = f"{row.verdict}: {', '.join(row.reasons)}" if row.reasons else row.verdict
    said = [row.clip_id, f"{row.start_seconds:.1f} s, {level}, {fate}", row.text or row.fault or "no caption"]
    return [printable(line) for line in said]
