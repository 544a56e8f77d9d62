"""Cadence of clean film, from a sample: enough to find what follows it, and little else is looked at."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from examples.world.barcode import read_barcode
from examples.world.textures import Picture
from examples.world.writer import write_film
from pipeline.video import cadence
from pipeline.video.cadence import PROGRESSIVE, QUIET, CadenceWatch, WatchedFrame
from pipeline.video.fields import FieldRestorer
from pipeline.video.film_reader import FilmReader, Frame
from tests.support.media.films import paint_pictures
from tests.support.media.woven_films import telecined, woven

SIZE = (320, 180)


def film(folder: Path, pictures: list[Picture]) -> Path:
    return write_film(folder / "film.mkv", pictures, fps=Fraction(30_000, 1001))


def restored(path: Path) -> tuple[list[Frame], list[str]]:
    restorer = FieldRestorer("auto", "film-01234567")
    with FilmReader(path) as reader:
        frames = list(restorer.frames(reader.frames()))
    return frames, [stretch.kind for stretch in restorer.stretches]


def numbers(frames: list[Frame]) -> list[int]:
    return [read_barcode(np.asarray(frame.picture.to_ndarray(format="bgr24"), np.uint8)) for frame in frames]


@pytest.mark.parametrize("beyond", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (11, 12, 13, 14, 15, 16))])
def test_a_telecined_stretch_after_clean_film_is_found_from_its_start(tmp_path: Path, beyond: int) -> None:
    frames, kinds = restored(film_with_a_stretch(tmp_path, QUIET + beyond))
    assert numbers(frames) == list(range(QUIET + beyond + 72))
    assert kinds == ["progressive", "telecine", "progressive"]


@pytest.mark.parametrize("hold", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("beyond", [13, *(pytest.param(n, marks=pytest.mark.slow) for n in range(14, 21))])
def test_a_sample_finds_what_looking_at_every_frame_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: int, hold: int
) -> None:
    path = film_with_a_stretch(tmp_path, QUIET + beyond, hold)
    by_sample, kinds = restored(path)
    monkeypatch.setattr(cadence, "QUIET", 10_000)
    by_all, kinds_by_all = restored(path)
    assert kinds == kinds_by_all
    assert [frame.seconds for frame in by_sample] == [frame.seconds for frame in by_all]


def film_with_a_stretch(folder: Path, clean: int, hold: int = 1) -> Path:
    """Write clean film on ones, twos or threes, with a second of telecine in it."""
    pictures = list(paint_pictures(clean + 72, SIZE, scenes=(0, clean, clean + 24)))
    pictures = [pictures[number - number % hold] for number in range(len(pictures))]
    return film(folder, [*pictures[:clean], *telecined(pictures[clean : clean + 24]), *pictures[clean + 24 :]])


@pytest.mark.slow
def test_a_mixed_frame_is_found_in_a_film_that_was_not_clean_before(tmp_path: Path) -> None:
    pictures = list(paint_pictures(40 + 2 * QUIET, SIZE, scenes=(0, 40)))
    at = 40 + QUIET + 60
    video = [*telecined(pictures[:40]), *pictures[40:at], woven(pictures[at - 1], pictures[at], True), *pictures[at:]]
    frames, _ = restored(film(tmp_path, video))
    assert numbers(frames) == list(range(40 + 2 * QUIET))


def test_a_quarter_of_clean_film_is_looked_at_once_ten_seconds_were_clean(tmp_path: Path) -> None:
    watch = CadenceWatch(may_sample=True)
    looked = []
    with FilmReader(film(tmp_path, list(paint_pictures(QUIET + 160, SIZE)))) as reader:
        for frame in reader.frames():
            watched = WatchedFrame(frame)
            assert watch.add(watched) in (None, PROGRESSIVE)
            looked.append(watched)
    assert all("fields" in vars(watched) for watched in looked[: QUIET - 1])
    assert sum("fields" in vars(watched) for watched in looked[QUIET + 1 :]) <= 160 * 2 / 8
