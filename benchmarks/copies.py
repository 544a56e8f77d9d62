"""Copies of a film by a poor encoder: how many near-duplicates are found, and what picture quality is measured.

    .venv/bin/python -m benchmarks.copies                     Big Buck Bunny; ten minutes and more on two cores
    .venv/bin/python -m benchmarks.copies FILM... --quality   the picture quality alone, of other films

Two seconds of film are encoded by x264 at several heights and CRFs, cut as in a build, and measured. Then the whole
film is copied at 320 lines and CRF 38. Both are cut, each by itself, and the copy's clips are searched in the film.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from examples.bunny.film import ATTRIBUTION, fetch_bunny, short_films
from examples.world.textures import Picture
from examples.world.writer import write_film
from pipeline.core.config import (
    ClipSettings,
    CropSettings,
    FilmSettings,
    LooksSettings,
    SceneSettings,
    SelectionSettings,
)
from pipeline.core.measurements import Looks
from pipeline.core.records import Clip, Crop, make_film_id
from pipeline.core.stage import perform
from pipeline.core.store import FilmFolder
from pipeline.stages.crop import FindCrop
from pipeline.stages.cut import Cut
from pipeline.stages.looks import MeasureLooks
from pipeline.stages.picture_quality import Quality, measure_quality
from pipeline.stages.probe import probe
from pipeline.stages.selection import FilmFacts, verdicts_of
from pipeline.video.clip_files import read_clip_gray, write_clip
from pipeline.video.film_reader import FilmReader
from pipeline.video.scaling import Geometry, Scaler

HEIGHTS, CRFS = (720, 480, 320), (18, 28, 38, 43)
COPY_HEIGHT, COPY_CRF = 320, 38
SECONDS = 2.1
PARTS = 5
"""Short films of Big Buck Bunny, evenly spread; the quality is measured on those from the second on."""
START_SECONDS = 6.0
"""Start of the measured part of other films."""
SETTINGS = ClipSettings()
NEAR_SECONDS = 3.0
"""Distance up to which a clip shows the scene of its original."""


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("films", nargs="*", type=Path, help="films [default: Big Buck Bunny]")
    parser.add_argument("--quality", action="store_true", help="measure the picture quality alone")
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        parts = [(film, START_SECONDS) for film in options.films] or [(film, 0.0) for film in _bunny_parts()]
        for film, start in parts:
            console.print(_quality_table(film, start, root))
        if not options.quality:
            for film in options.films or [fetch_bunny()]:
                console.print(_found(film, root))
    if not options.films:
        console.print(ATTRIBUTION)


def _bunny_parts() -> list[Path]:
    return short_films(PARTS, 2 * SECONDS)[1:]


def _quality_table(film: Path, start: float, root: Path) -> Table:
    table = Table("height", "crf", "sharpness", "blockiness", "banding", title=film.name)
    shown = list(_pictures(film, start, start + SECONDS))
    fps = probe(film, "film", "").fps
    for height in HEIGHTS:
        for crf in CRFS:
            copy = _copy(iter(shown), fps, height, crf, root / "copy.mkv")
            quality = _quality_of(copy, root / "clip.mp4")
            values = (quality.sharpness, quality.blockiness, quality.banding)
            table.add_row(str(height), str(crf), *("" if value is None else f"{value:.2f}" for value in values))
    return table


def _pictures(film: Path, start: float = 0.0, end: float | None = None) -> Iterator[Picture]:
    with FilmReader(film, threads=1) as reader:
        for frame in reader.frames(end):
            if frame.seconds >= start:
                yield np.asarray(frame.picture.to_ndarray(format="bgr24"), np.uint8)


def _copy(pictures: Iterator[Picture], fps: Fraction, height: int, crf: int, out: Path) -> Path:
    first = next(pictures)
    size = (2 * round(first.shape[1] * height / first.shape[0] / 2), height)
    whole = (
        np.asarray(cv2.resize(one, size, interpolation=cv2.INTER_AREA), np.uint8) for one in chain([first], pictures)
    )
    return write_film(out, whole, fps=fps, options={"crf": str(crf), "preset": "veryfast"})


def _quality_of(film: Path, out: Path) -> Quality:
    """Quality of the first clip of a film, scaled and coded as in a build."""
    found = probe(film, "film", "")
    whole = Crop(film_id="film", left=0, top=0, width=found.width, height=found.height, frames_used=0)
    scaler = Scaler(Geometry.of(found, whole), (SETTINGS.width, SETTINGS.height), SETTINGS.fit, "clip")
    step = round(found.fps / SETTINGS.fps)
    with FilmReader(film, threads=1) as reader:
        write_clip(
            out, (scaler(frame.picture) for frame in islice(reader.frames(), 0, None, step)), SETTINGS.fps, SETTINGS.crf
        )
    return measure_quality(read_clip_gray(out))


def _found(film: Path, root: Path) -> str:
    """A sentence about the clips of a copy of the film that are found in it."""
    fps = probe(film, "film", "").fps
    copy = _copy(_pictures(film), fps, COPY_HEIGHT, COPY_CRF, root / "copied.mkv")
    facts = [_facts(path, root / "data") for path in (film, copy)]
    settings = SelectionSettings()
    alone = sum(row.duplicate_of is not None for row in verdicts_of(facts[:1], settings)[facts[0].film_id])
    starts = {clip.clip_id: clip.start_seconds for clip in facts[0].clips}
    rows = zip(facts[1].clips, verdicts_of(facts, settings)[facts[1].film_id], strict=True)
    repeats = [(clip.start_seconds, row.duplicate_of, row.reasons) for clip, row in rows]
    right = sum(original in starts and abs(starts[original] - at) <= NEAR_SECONDS for at, original, _ in repeats)
    wrong = sum(original is not None for _, original, _ in repeats) - right
    kept = sum(not reasons for *_, reasons in repeats)
    return (
        f"{film.name}, {COPY_HEIGHT} lines, CRF {COPY_CRF}: of {len(repeats)} clips {right} are found, {wrong} are "
        f"taken for another clip, and {kept} are kept; of {len(starts)} clips of the film alone, {alone} are repeats"
    )


def _facts(path: Path, root: Path) -> FilmFacts:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    film = probe(path, make_film_id(path.name, sha256), sha256)
    folder = FilmFolder(root / "films" / film.film_id)
    folder.save_film(film)
    for stage in (
        FindCrop(CropSettings()),
        Cut(FilmSettings(), SceneSettings(), SETTINGS, threads=2),
        MeasureLooks(LooksSettings(text=False), threads=2),
    ):
        perform(stage, folder)
    clips = tuple(folder.read("clips", Clip))
    looks = {row.clip_id: row for row in folder.read("looks", Looks)}
    return FilmFacts(folder.film_id, clips, looks, {clip.clip_id: 3 for clip in clips}, None, {})


if __name__ == "__main__":
    main()
