"""HTML of clips for a cell of a notebook: a clip that plays, or a sheet of first frames, each with its caption.

Jupyter shows an object by its `_repr_html_`, so no package of it is needed here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from pathlib import Path

from pipeline.core.plain_text import printable
from pipeline.pages.contact_sheet import PICTURE_TYPE, PICTURE_WIDTH, thumbnail
from pipeline.publish.clip_rows import ClipRow

_THREADS = 4
_TILE = f"display:inline-block;width:{PICTURE_WIDTH}px;margin:4px;vertical-align:top;font-size:11px;line-height:1.3"


@dataclass(frozen=True)
class Html:
    """Piece of HTML that a notebook shows; elsewhere, its text."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def playing_clip(row: ClipRow, path: Path) -> Html:
    """Return a clip as a video in a loop, with what is known about it."""
    video = base64.b64encode(path.read_bytes()).decode("ascii")
    lines = [*_lines(row), *([printable(row.sentence)] if row.sentence else [])]
    said = "".join(f"<div>{escape(line)}</div>" for line in lines)
    source = f'<source type="video/mp4" src="data:video/mp4;base64,{video}">'
    return Html(f"<div><video controls loop autoplay muted playsinline>{source}</video>{said}</div>", "\n".join(lines))


def sheet_of_clips(rows: Sequence[ClipRow], paths: Iterable[Path], left_out: int) -> Html:
    """Return the first frames of clips with their captions.

    Args:
        rows: the clips.
        paths: their files.
        left_out: number of clips that the user named and that are not among these, for a remark.
    """
    heights = [max(2, round(PICTURE_WIDTH * row.height / row.width)) for row in rows]
    with ThreadPoolExecutor(_THREADS) as pool:
        pictures = list(pool.map(thumbnail, paths, heights))
    tiles = [_tile(row, picture) for row, picture in zip(rows, pictures, strict=True)]
    more = f"<div>and {left_out:,} more; name fewer rows, or a larger limit</div>" if left_out else ""
    text = "\n".join("  ".join(_lines(row)) for row in rows)
    return Html(f"<div>{''.join(tiles)}{more}</div>", text)


def _tile(row: ClipRow, picture: str) -> str:
    image = (
        f'<img width="{PICTURE_WIDTH}" alt="" src="data:{PICTURE_TYPE};base64,{picture}">' if picture else "no picture"
    )
    said = "<br>".join(escape(line) for line in _lines(row))
    return f'<div style="{_TILE};overflow-wrap:anywhere">{image}<br>{said}</div>'


def _lines(row: ClipRow) -> list[str]:
    level = f"level {row.level}" if row.level else "no level"
    fate = f"{row.verdict}: {', '.join(row.reasons)}" if row.reasons else row.verdict
    said = [row.clip_id, f"{row.start_seconds:.1f} s, {level}, {fate}", row.text or row.fault or "no caption"]
    return [printable(line) for line in said]
