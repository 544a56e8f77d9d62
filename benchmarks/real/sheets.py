"""Contact sheets to look at: mixed clips that were kept, clips that were lost, and lost stretches of a film."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import cv2
import numpy as np

from benchmarks.real.stretches import Stretch
from pipeline.video.clip_files import read_frames
from pipeline.video.containers import Picture
from pipeline.video.film_reader import FilmReader

ROWS = 40
"""Rows of a sheet."""
_WIDTH, _HEIGHT, _SHOWN = 160, 96, 8
_TITLE_HEIGHT = 16


@dataclass(frozen=True)
class Row:
    """Pictures of a clip or a stretch, BGR, with a line under them."""

    frames_THWC: Picture
    title: str


def clip_rows(paths: Iterable[Path]) -> list[Row]:
    """Return a row for each clip file."""
    return [Row(read_frames(path, _spread, _WIDTH, _HEIGHT), path.stem) for path in paths]


def stretch_rows(stretches: Iterable[Stretch]) -> list[Row]:
    """Return a row for each stretch, with its time and reasons; the stretches of a film follow each other."""
    rows = []
    for film, group in groupby(stretches, lambda stretch: stretch.film):
        lost = list(group)
        pictures = _film_pictures(film, [moment for one in lost for moment in _moments(one)])
        for number, one in enumerate(lost):
            title = f"{one.start_seconds:.2f} to {one.end_seconds:.2f} s: {', '.join(one.reasons)}"
            rows.append(Row(np.stack(pictures[_SHOWN * number : _SHOWN * (number + 1)]), title))
    return rows


def write_sheets(out: Path, rows: Sequence[Row]) -> None:
    """Write `OUT-1.png`, `OUT-2.png` and so on, and remove the sheets of an earlier run."""
    for old in out.parent.glob(f"{out.name}-[0-9]*.png"):
        old.unlink()
    for number, first in enumerate(range(0, len(rows), ROWS), start=1):
        pictures = np.vstack([_drawn(row) for row in rows[first : first + ROWS]])
        cv2.imwrite(str(out.with_name(f"{out.name}-{number}.png")), pictures)


def _spread(frames: int) -> list[int]:
    return [int(number) for number in np.linspace(0, frames - 1, _SHOWN).round()]


def _moments(stretch: Stretch) -> list[float]:
    return [float(moment) for moment in np.linspace(stretch.start_seconds, stretch.end_seconds, _SHOWN, endpoint=False)]


def _film_pictures(film: Path, moments: Sequence[float]) -> list[Picture]:
    """Return the first picture from each moment on, for sorted moments; the film's last one if it ends before."""
    pictures: list[Picture] = []
    with FilmReader(film) as reader:
        for frame in reader.frames():
            while len(pictures) < len(moments) and moments[len(pictures)] <= frame.seconds:
                small = frame.picture.reformat(_WIDTH, _HEIGHT, "bgr24")
                pictures.append(small.to_ndarray().astype(np.uint8, copy=False))
            if len(pictures) == len(moments):
                return pictures
    return pictures + pictures[-1:] * (len(moments) - len(pictures))


def _drawn(row: Row) -> Picture:
    title_HWC = np.zeros((_TITLE_HEIGHT, _WIDTH * _SHOWN, 3), np.uint8)
    cv2.putText(title_HWC, row.title, (2, 12), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1)
    return np.vstack([np.hstack(list(row.frames_THWC)), title_HWC])
