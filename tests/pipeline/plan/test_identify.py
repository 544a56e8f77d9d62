"""Identification of films: a bad file costs itself alone, and new content replaces the old."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.core.progress import Progress
from pipeline.core.records import Film
from pipeline.core.store import Dataset, DatasetRecord
from pipeline.plan.identify import IdentifiedFilms, identify
from pipeline.stages import probe
from tests.support.media.films import make_film
from tests.support.media.probed_films import retimed


def small_film(path: Path, frames: int) -> Path:
    return make_film(path, frames=frames, size=(64, 48), barcode=False, options={"bf": "0"})


def planned(dataset: Dataset, paths: Sequence[Path]) -> IdentifiedFilms:
    """Identify the films and list them in the dataset, as the plan of a build does."""
    found = identify([str(path) for path in paths], dataset)
    dataset.save(DatasetRecord(films=found.listed(dataset.record.films)))
    return found


def names(dataset: Dataset) -> list[str]:
    return [entry.name for entry in dataset.record.films]


def faulty_probe(job: tuple[Path, str, str], _: Progress) -> Film:
    if job[0].name == "odd.mkv":
        raise LookupError("a bug")
    return probe.probe(*job)


def test_a_film_without_times_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    good = small_film(tmp_path / "good.mkv", 8)
    stuck = retimed(small_film(tmp_path / "source.mkv", 201), tmp_path / "stuck.mkv", [0] * 200 + [40])
    found = identify([str(stuck), str(good)], Dataset(tmp_path / "data"))
    assert [film.name for film in found.films] == ["good.mkv"]
    [refused] = found.refused
    assert refused.record_id == str(stuck)
    assert "carry no times" in refused.reason


def test_a_bug_in_the_probe_refuses_the_film_that_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_probe_job", faulty_probe)
    films = [small_film(tmp_path / name, frames) for name, frames in (("odd.mkv", 8), ("good.mkv", 9))]
    found = identify([str(film) for film in films], Dataset(tmp_path / "data"))
    assert [film.name for film in found.films] == ["good.mkv"]
    [refused] = found.refused
    assert refused.record_id == str(films[0])
    assert "the probe failed: " in refused.reason


def test_new_content_takes_the_place_of_the_old_and_moves_no_other_film(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path / "data")
    films = [small_film(tmp_path / f"{number}.mkv", 8 + number) for number in range(4)]
    planned(dataset, films)
    before = dataset.record.films
    small_film(films[1], 20)
    found = planned(dataset, [small_film(tmp_path / "new.mkv", 21), films[1]])
    assert found.replaced.keys() == {before[1].film_id}
    assert names(dataset) == ["0.mkv", "1.mkv", "2.mkv", "3.mkv", "new.mkv"]
    after = dataset.record.films
    assert after[1].film_id == found.replaced[before[1].film_id] != before[1].film_id
    assert [*after[:1], *after[2:4]] == [*before[:1], *before[2:]]


def test_a_path_with_the_content_of_another_film_of_the_dataset_removes_its_own(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path / "data")
    films = [small_film(tmp_path / f"{number}.mkv", 8 + number) for number in range(3)]
    planned(dataset, films)
    films[0].write_bytes(films[2].read_bytes())
    planned(dataset, films[:1])
    assert names(dataset) == ["1.mkv", "2.mkv"]
