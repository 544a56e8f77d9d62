"""Notebook interface: its tables against those on disk, frames, pages, a dataset in an object store, bad input."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.core.records import Caption, Reviewed, Verdict
from pipeline.core.store import Dataset
from pipeline.notebook import OpenedDataset, open_dataset
from pipeline.publish.shards import read_index, unpack, write_shards
from pipeline.remote.mirror import Mirror
from tests.support.datasets.made_dataset import CAST, MODEL, make_dataset
from tests.support.servers.object_store import ObjectStore


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    dataset = make_dataset(tmp_path_factory.mktemp("notebook") / "data", captioner=MODEL)
    folder = dataset.folders()[0]
    first = folder.read("captions", Caption)[0]
    folder.write("reviewed", [Reviewed(clip_id=first.clip_id, fields=("EV",), keep=True, EV="harbour")])
    write_shards(dataset, ShardSettings(samples=3))
    return dataset


@pytest.fixture(scope="module")
def data(made: Dataset) -> OpenedDataset:
    return open_dataset(made.root)


def test_a_row_a_clip_with_the_shard_that_holds_it(made: Dataset, data: OpenedDataset) -> None:
    table = data.clips.set_index("clip_id")
    assert len(table) == 20
    shards = read_index(made.root).shards
    assert len(shards) > 4
    samples = {packed.key: one.name for one in shards for packed in unpack(made.root / "shards" / one.name, [])}
    assert table[table.verdict == "kept"].shard.to_dict() == samples
    assert table[table.verdict != "kept"].shard.isna().all()


def test_values_are_those_of_the_tables_and_reviews(made: Dataset, data: OpenedDataset) -> None:
    table = data.clips.set_index("clip_id")
    verdicts = [row for folder in made.folders() for row in folder.read("verdicts", Verdict)]
    assert table.level.to_dict() == {row.clip_id: row.level for row in verdicts}
    assert table.reasons.to_dict() == {row.clip_id: row.reasons for row in verdicts}
    captions = {row.clip_id: row for folder in made.folders() for row in folder.read("captions", Caption)}
    assert {clip: names for clip, names in table.characters.items() if names is not None} == {
        clip: caption.characters for clip, caption in captions.items()
    }
    reviewed = table[table.reviewed.map(bool)]
    assert reviewed.EV.tolist() == ["harbour"]
    assert reviewed.reviewed.tolist() == [("EV", "keep")]


def test_missing_values_keep_the_types_of_their_columns(made: Dataset, data: OpenedDataset, tmp_path: Path) -> None:
    assert str(data.clips.level.dtype) == str(data.clips.SC.dtype) == "Int64"
    rules = open_dataset(make_dataset(tmp_path / "rules").root).clips
    assert rules.S.isna().all()
    assert rules[rules.S.str.startswith("g")].empty
    nothing = Dataset(tmp_path / "empty")
    nothing.save(nothing.record)
    empty = open_dataset(nothing.root)
    assert list(empty.clips.columns) == list(rules.columns)
    assert empty.clips.empty
    assert empty.films.empty


def test_films_count_their_clips_by_verdict(made: Dataset, data: OpenedDataset) -> None:
    assert data.films.film_id.tolist() == [film.film_id for film in made.record.films]
    for film in data.films.itertuples():
        verdicts = made.folder(film.film_id).read("verdicts", Verdict)
        assert film.kept == sum(row.keep for row in verdicts)
        assert film.kept + film.dropped == len(verdicts) == 10
        assert film.pending == film.failed == 0


def test_a_film_that_failed_at_once_has_a_row(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data")
    (dataset.folders()[1].path / "film.json").unlink()
    films = open_dataset(dataset.root).films
    assert films.film_id.tolist() == [film.film_id for film in dataset.record.films]
    assert pd.isna(films.codec[1])


def test_pages_hold_the_clips_and_escape_their_words(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    folder = dataset.folders()[0]
    first, *others = folder.read("captions", Caption)
    hostile = "<img src=x onerror=alert(1)>"
    said = {"S": hostile, "characters": (), "actor": None, "sentence": "red \x1b[31m"}
    folder.write("captions", [first.model_copy(update=said), *others])
    data = open_dataset(str(dataset.root))
    assert "\x1b" not in repr(data.show(first.clip_id))
    shown = data.show(first.clip_id)._repr_html_()
    sheet = data.sheet(data.clips[data.clips.verdict == "kept"], limit=4)
    for page in (shown, sheet.html):
        assert hostile not in page
        assert "&lt;img src=x" in page
    assert 'src="data:video/mp4;base64,' in shown
    assert sheet.html.count("data:image/jpeg;base64,/9j/") == 4
    assert "and 11 more" in sheet.html
    assert repr(sheet).count("\n") == 3
    for one in ([first.clip_id], first.clip_id):
        assert data.sheet(one).html.count("<img") == 1


def test_of_an_address_only_tables_are_fetched_and_clips_when_asked_for(
    made: Dataset, data: OpenedDataset, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "work"))
    Mirror(object_store.address("data"), made.root).push()
    (made.root / ".cache" / "mirror.json").unlink()
    object_store.requests.clear()
    remote = open_dataset(object_store.address("data"))
    pd.testing.assert_frame_equal(remote.clips, data.clips)
    pd.testing.assert_frame_equal(remote.films, data.films)

    def fetched(ending: str) -> list[str]:
        return [key for method, key in object_store.requests if method == "GET" and key.endswith(ending)]

    assert fetched(".mp4") == fetched(".tar") == []
    wanted = data.clips.clip_id[:3].tolist()
    with ThreadPoolExecutor(3) as pool:
        for clip_id, frames in zip(wanted, pool.map(remote.frames, wanted), strict=True):
            np.testing.assert_array_equal(frames, data.frames(clip_id))
    remote.sheet(wanted)
    assert sorted(key.rpartition("/")[2] for key in fetched(".mp4")) == [f"{clip_id}.mp4" for clip_id in wanted]
    assert object_store.written() == []


@pytest.mark.slow
def test_what_was_fetched_for_a_notebook_does_no_harm_to_a_build(
    made: Dataset, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the tables alone, a whole pull completes the copy, and a push removes nothing."""
    monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "work"))
    address = object_store.address("whole")
    Mirror(address, made.root).push()
    (made.root / ".cache" / "mirror.json").unlink()
    before = object_store.contents("whole/")
    remote = open_dataset(address)
    remote.frames(remote.clips.clip_id[0])
    mirror = Mirror(address)
    mirror.push()
    assert object_store.contents("whole/") == before
    mirror.pull()
    names = {str(path.relative_to(mirror.local)) for path in mirror.local.rglob("*") if path.is_file()}
    assert before.keys() <= names


def test_an_address_without_a_dataset(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "work"))
    with pytest.raises(UserError, match=r"s3://bucket/nothing: no dataset there"):
        open_dataset(object_store.address("nothing"))


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no dataset here"):
        open_dataset(tmp_path)
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    data = open_dataset(dataset.root)
    first, second = data.clips.clip_id[:2]
    with pytest.raises(UserError, match=f"no clip 'ponyo'.*such as {first}"):
        data.frames("ponyo")
    with pytest.raises(UserError, match="no clip"):
        data.sheet([CAST[0]])
    with pytest.raises(UserError, match="limit=-1"):
        data.sheet(data.clips, limit=-1)
    with pytest.raises(UserError, match="no column `clip_id`"):
        data.sheet(data.clips[["level"]])
    with pytest.raises(UserError, match="no clip"):
        data.show(data.clips.iloc[0])  # type: ignore[arg-type]
    folder = dataset.folders()[0]
    folder.clip_path(first).unlink()
    folder.clip_path(second).write_bytes(b"not a clip")
    with pytest.raises(UserError, match="is missing; run"):
        data.show(first)
    with pytest.raises(UserError, match="is changed since it was cut"):
        data.frames(second)
    folder.table_path("captions").write_bytes(b"not a table")
    with pytest.raises(UserError, match=r"captions\.parquet: cannot be read"):
        open_dataset(dataset.root)
