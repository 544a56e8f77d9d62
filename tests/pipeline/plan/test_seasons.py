"""Comparison of episodes in a dataset: from the hashes of whole films, or of clips if a film has no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.core.records import HashedPicture
from pipeline.core.store import Dataset, FilmFolder, StageRecord
from pipeline.plan.seasons import compare_episodes
from tests.support import records

FPS = 8
SHARED = [np.random.default_rng(seed).bytes(32).hex() for seed in range(20 * FPS)]


def episode(
    dataset: Dataset, number: int, opening_at: int, *, series: str | None = "Kiki", is_hashed: bool = True
) -> FilmFolder:
    """An episode of 60 seconds with an opening of 20; only 12 seconds in its middle are in clips."""
    film = records.film(f"{series} - {number:02d}.mkv", seconds=60, series=series, episode=series and number)
    random = np.random.default_rng(100 + number)
    hashes = [random.bytes(32).hex() for _ in range(60 * FPS)]
    hashes[opening_at * FPS : (opening_at + 20) * FPS] = SHARED
    folder = dataset.folder(film.film_id)
    folder.save_film(film)
    folder.write("scenes", [records.scene(film.film_id, 0, 60)])
    if is_hashed:
        folder.write("hashes", [HashedPicture(seconds=at / FPS, hash=text) for at, text in enumerate(hashes)])
    clips = [records.clip(film.film_id, opening_at + 4.0 + 2 * number) for number in range(6)]
    folder.write("clips", clips)
    starts = [round(clip.start_seconds * FPS) for clip in clips]
    looks = [
        records.looks(clip.clip_id, hashes=tuple(hashes[at : at + 16])) for clip, at in zip(clips, starts, strict=True)
    ]
    folder.write("looks", looks)
    made: dict[str, str] = {}
    for stage, tables in {"crop": (), "cut": ("scenes", "hashes", "clips"), "looks": ("looks",)}.items():
        files = folder.marks(f"{table}.parquet" for table in tables)
        record = StageRecord(stage=stage, fingerprint=stage, ingredients={"upstream": dict(made)}, files=files)
        folder.save_stage_record(record)
        made[stage] = record.result
    return folder


def repeats(folders: list[FilmFolder]) -> list[tuple[str, float, float]]:
    return [(row.kind, row.start_seconds, row.end_seconds) for folder in folders for row in folder.film.repeats]


def test_an_opening_is_found_beyond_the_clips_and_not_looked_for_again(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path)
    folders = [episode(dataset, number, opening_at) for number, opening_at in ((1, 5), (2, 8))]
    ids = [folder.film_id for folder in folders]
    assert compare_episodes(dataset, ids) == ids
    assert repeats(folders) == [
        ("opening", pytest.approx(5, abs=0.1), pytest.approx(25, abs=0.1)),
        ("opening", pytest.approx(8, abs=0.1), pytest.approx(28, abs=0.1)),
    ]
    assert compare_episodes(dataset, ids) == []


def test_two_series_and_a_film_with_the_same_pictures_are_not_compared(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path)
    folders = [episode(dataset, 1, 5, series=series) for series in ("Kiki", "Ponyo", None)]
    assert compare_episodes(dataset, [folder.film_id for folder in folders]) == []
    assert repeats(folders) == []


def test_a_film_that_was_cut_before_there_were_hashes_is_compared_by_its_clips(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path)
    folders = [episode(dataset, 1, 5), episode(dataset, 2, 8, is_hashed=False)]
    compare_episodes(dataset, [folder.film_id for folder in folders])
    assert repeats(folders) == [("recap", pytest.approx(12, abs=0.1), pytest.approx(24, abs=0.1))]
