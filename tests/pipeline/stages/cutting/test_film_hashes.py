"""Hashes of a film's pictures: their times, and their independence of threads, encoding and borders."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.core.progress import silent
from pipeline.core.records import HashedPicture
from pipeline.stages.cutting.film_cutter import cut_film
from tests.support.media.cut_films import folder_of, job_of
from tests.support.media.films import make_film

SCENES = (0, 30, 55)


def hashed(tmp_path: Path, film: Path, threads: int = 1, **crop: int) -> list[HashedPicture]:
    job = job_of(folder_of(tmp_path, film))
    crops = (job.crops[0].model_copy(update=crop),)
    return cut_film(replace(job, crops=crops, threads=threads), silent).hashes


def bits_between(one: HashedPicture, other: HashedPicture) -> int:
    return (int(one.hash, 16) ^ int(other.hash, 16)).bit_count()


def test_eight_pictures_a_second_have_the_same_hash_at_any_number_of_threads(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mp4", frames=75, fps=Fraction(24000, 1001), scenes=SCENES)
    rows = hashed(tmp_path, film)
    assert [round(row.seconds * 24000 / 1001) for row in rows] == list(range(0, 75, 3))
    assert rows == hashed(tmp_path, film, threads=3)
    assert bits_between(rows[6], rows[12]) > 72, "another scene"


def test_other_encodings_and_borders_change_few_bits(tmp_path: Path) -> None:
    plain = hashed(tmp_path, make_film(tmp_path / "plain.mp4", frames=75, scenes=SCENES, barcode=False))
    path = make_film(
        tmp_path / "boxed.mp4",
        frames=75,
        scenes=SCENES,
        size=(400, 240),
        borders=(40, 30, 40, 30),
        barcode=False,
        options={"crf": "30"},
    )
    boxed = hashed(tmp_path, path, left=40, top=30, width=320, height=180)
    assert max(bits_between(*pair) for pair in zip(plain, boxed, strict=True)) <= 60
    assert min(bits_between(*pair) for pair in zip(plain, hashed(tmp_path, path), strict=True)) > 100, (
        "with the borders"
    )


def test_a_film_of_few_frames_gets_one_hash_for_each(tmp_path: Path) -> None:
    rows = hashed(tmp_path, make_film(tmp_path / "slow.mp4", frames=6, fps=2))
    assert [row.seconds for row in rows] == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5])
