"""Folders of a dataset: written records are read back, and damaged files are errors with a remedy."""

import os
import time
from pathlib import Path

import pytest

from pipeline.core.records import Crop, Damage
from pipeline.core.store import (
    Dataset,
    DatasetRecord,
    FileMark,
    FilmEntry,
    FilmFolder,
    StageRecord,
    StoreError,
)
from tests.support import records
from tests.support.records import FILM_ID

CROP = records.crop(width=320, height=180)


@pytest.fixture
def folder(tmp_path: Path) -> FilmFolder:
    return Dataset(tmp_path / "a dataset").folder(FILM_ID)


# --- atomic writes -------------------------------------------------------------------------------------------------


# --- a film's folder -----------------------------------------------------------------------------------------------


def test_a_missing_film_is_an_error_with_a_remedy(folder: FilmFolder) -> None:
    with pytest.raises(StoreError, match=r"film\.json: no such file.*animegamer build"):
        _ = folder.film


@pytest.mark.parametrize("content", [b"", b"PAR1", b"this is no table" * 100])
def test_a_damaged_table_is_an_error_with_a_remedy(folder: FilmFolder, content: bytes) -> None:
    folder.write("crop", [CROP])
    folder.table_path("crop").write_bytes(content)
    with pytest.raises(StoreError, match=r"crop\.parquet: cannot be read"):
        folder.read("crop", Crop)


def test_a_table_of_other_columns_is_an_error_with_a_remedy(folder: FilmFolder) -> None:
    folder.write("damage", [Damage(film_id="f", start_seconds=0, end_seconds=1, reason="r")])
    folder.table_path("damage").rename(folder.table_path("crop"))
    with pytest.raises(StoreError, match=r"another version.*delete it and build again"):
        folder.read("crop", Crop)


def test_a_stage_record_is_none_until_saved_and_after_being_forgotten(folder: FilmFolder) -> None:
    mark = FileMark(bytes=9, sha256="0")
    record = StageRecord(stage="crop", fingerprint="0" * 16, ingredients={"a": [1]}, files={"crop.parquet": mark})
    assert folder.stage_record("crop") is None
    folder.save_stage_record(record)
    assert folder.stage_record("crop") == record
    folder.forget_stage("crop")
    folder.forget_stage("crop")
    assert folder.stage_record("crop") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 3}'])
def test_a_stage_with_a_damaged_record_counts_as_not_made(folder: FilmFolder, content: str) -> None:
    folder.path.mkdir(parents=True)
    (folder.path / "crop.json").write_text(content)
    assert folder.stage_record("crop") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 3}'])
def test_a_damaged_film_record_is_an_error_with_a_remedy(folder: FilmFolder, content: str) -> None:
    folder.path.mkdir(parents=True)
    (folder.path / "film.json").write_text(content)
    with pytest.raises(StoreError, match=r"film\.json: damaged, or of another version.*delete it and build again"):
        _ = folder.film


@pytest.mark.parametrize("name", ["../outside", "..", "", "a/b", "/absolute", ".hidden", "a b", "line\n"])
def test_ids_that_leave_the_folder_are_refused(folder: FilmFolder, tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="not an id"):
        folder.clip_path(name)
    with pytest.raises(StoreError, match="not an id"):
        Dataset(tmp_path).folder(name)


# --- the dataset --------------------------------------------------------------------------------------------------


def test_a_new_dataset_is_empty_and_lists_films_in_the_order_they_were_added(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path / "set")
    assert (dataset.record, dataset.folders()) == (DatasetRecord(), [])
    films = tuple(FilmEntry(film_id=f"{name}-01234567", name=name, sha256="0" * 64) for name in ("b", "a"))
    record = DatasetRecord(films=films, flow_model="dis", edges=(1.5, 6.25, 12.5, 27.5), level_values=(0.5, 3.0))
    dataset.save(record)
    assert dataset.record == record
    assert [folder.path for folder in dataset.folders()] == [
        tmp_path / "set" / "films" / "b-01234567",
        tmp_path / "set" / "films" / "a-01234567",
    ]


def test_leftovers_of_a_killed_plan_are_swept_and_films_in_progress_are_not(tmp_path: Path) -> None:
    left = [tmp_path / ".dataset.json.animegamer-tmp-ab12_xyz.json"]
    left.append(tmp_path / ".cache" / ".mirror.json.animegamer-tmp-ab12_xyz.json")
    on_its_way = tmp_path / ".cache" / "films" / ".film.mp4.animegamer-tmp-ab12_xyz.mp4"
    on_its_way.parent.mkdir(parents=True)
    a_workers = tmp_path / ".cache" / ".mirror.json.animegamer-tmp-0a1b2c3d.json"
    for path in (*left, on_its_way, a_workers):
        path.touch()
    hours_ago = time.time() - 7200
    for path in (*left, on_its_way):
        os.utime(path, (hours_ago, hours_ago))
    Dataset(tmp_path).sweep()
    assert not any(path.exists() for path in left)
    assert on_its_way.exists()
    assert a_workers.exists()


def test_a_dataset_of_a_later_version_is_refused(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path)
    dataset.save(DatasetRecord())
    path = tmp_path / "dataset.json"
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 3'))
    with pytest.raises(StoreError, match="schema_version"):
        _ = dataset.record
