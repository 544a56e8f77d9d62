"""Shards as files: content, the same complete bytes on every run, and reading by other libraries."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import webdataset
from pyarrow import parquet

from pipeline.core.config import ShardSettings
from pipeline.core.records import Caption, RecordError, Verdict
from pipeline.core.store import Dataset, StoreError
from pipeline.publish.samples import SHARD_SCHEMA, Sample, hub_features
from pipeline.publish.shards import Index, read_index, write_shards
from tests.support.datasets.made_dataset import EDGES, MODEL, make_dataset
from tests.support.datasets.published_clips import SMALL, change, samples_of, tars
from tests.support.shared_folders import VARIABLE

ROOT = Path(__file__).parents[3]
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"
"""Start of a program without torch: shards are written without it, and importing it would take seconds."""


# --- content


def test_only_kept_clips_are_published(dataset: Dataset) -> None:
    index = write_shards(dataset, SMALL)
    kept = {
        verdict.clip_id for folder in dataset.folders() for verdict in folder.read("verdicts", Verdict) if verdict.keep
    }
    samples = samples_of(dataset)
    assert {sample.clip_id for sample in samples} == kept
    assert len(samples) == len(kept) == 15
    assert index.counts.split == dict(Counter(sample.split for sample in samples))
    assert index.counts.film == dict(Counter(sample.film_id for sample in samples))
    assert index.counts.level == {str(n): sum(sample.motion.level == n for sample in samples) for n in range(1, 6)}


def test_a_split_with_too_few_scenes_is_named(tmp_path: Path, dataset: Dataset) -> None:
    assert write_shards(dataset, ShardSettings(val_share=0.3)).split_remark is None
    said = write_shards(make_dataset(tmp_path, films=4, scenes=1, clips=8), ShardSettings()).split_remark
    assert said == (
        "the split val has 0 of 21 samples, not 20%: there are too few scenes to divide; "
        "add films, or lower `[shards] block_seconds`"
    )


def test_a_shard_holds_one_film_in_time_order_and_ends_where_a_scene_ends(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, scenes=12, clips=3)
    index = write_shards(dataset, ShardSettings(samples=4))
    shard_of_scene: dict[tuple[str, int], str] = {}
    for shard in index.shards:
        with tarfile.open(dataset.root / "shards" / shard.name) as tar:
            keys = [name.removesuffix(".json") for name in tar.getnames() if name.endswith(".json")]
            here = [Sample.model_validate_json(tar.extractfile(f"{key}.json").read()) for key in keys]
        assert {sample.film_id for sample in here} == {shard.film_id}
        assert [sample.start_seconds for sample in here] == sorted(sample.start_seconds for sample in here)
        assert [keys[0], keys[-1], len(keys)] == [shard.first_clip, shard.last_clip, shard.samples]
        for sample in here:
            assert shard_of_scene.setdefault((sample.film_id, sample.scene), shard.name) == shard.name
    sizes = [shard.samples for shard in index.shards if shard.split == "train"]
    assert max(sizes) <= 6
    assert sum(size >= 4 for size in sizes) >= 4


def test_the_index_describes_every_file(dataset: Dataset) -> None:
    index = write_shards(dataset, SMALL)
    assert index == read_index(dataset.root)
    assert {shard.name: shard.sha256 for shard in index.shards} == {
        name: hashlib.sha256(content).hexdigest() for name, content in tars(dataset).items()
    }
    assert [(dataset.root / "shards" / shard.name).stat().st_size for shard in index.shards] == [
        shard.bytes for shard in index.shards
    ]
    assert (index.flow_model, index.edges, index.captioner, index.settings) == ("dis", EDGES, MODEL, SMALL)


def test_a_film_without_a_kept_clip_or_without_verdicts_has_no_shard(dataset: Dataset) -> None:
    first, second = dataset.folders()
    write_shards(dataset, SMALL)
    first.write("verdicts", [v.model_copy(update={"keep": False}) for v in first.read("verdicts", Verdict)])
    assert {shard.film_id for shard in write_shards(dataset, SMALL).shards} == {second.film_id}
    second.table_path("verdicts").unlink()
    assert write_shards(dataset, SMALL).shards == ()
    assert tars(dataset) == {}


# --- the same bytes, whole or not at all


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes_in_another_process_and_folder(dataset: Dataset, tmp_path: Path) -> None:
    write_shards(dataset, SMALL)
    code = WITHOUT_TORCH + (
        "import sys, pathlib; from tests.support.datasets.made_dataset import *; from pipeline.publish.shards import *;"
        "write_shards(make_dataset(pathlib.Path(sys.argv[1]), captioner=MODEL), ShardSettings(samples=3))"
    )
    other = Dataset(tmp_path / "elsewhere")
    command = [sys.executable, "-c", code, str(other.root)]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "7", VARIABLE: ""})
    assert tars(dataset) == tars(other)
    assert read_index(dataset.root) == read_index(other.root)


def test_unchanged_shards_are_not_rewritten_and_damaged_ones_are(dataset: Dataset) -> None:
    index = write_shards(dataset, SMALL)
    before = tars(dataset)
    paths = [dataset.root / "shards" / shard.name for shard in index.shards]
    damaged = paths[1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    inodes = [path.stat().st_ino for path in paths]
    assert write_shards(dataset, SMALL) == index
    assert [path.stat().st_ino != inode for path, inode in zip(paths, inodes, strict=True)] == [
        path == damaged for path in paths
    ]
    assert tars(dataset) == before


def test_a_changed_caption_rewrites_its_shard_only(dataset: Dataset) -> None:
    write_shards(dataset, SMALL)
    before = tars(dataset)
    clip_id = change(dataset, "captions", Caption, S="owl")
    write_shards(dataset, SMALL)
    changed = [name for name, content in tars(dataset).items() if content != before[name]]
    assert changed == [shard.name for shard in read_index(dataset.root).shards if shard.first_clip == clip_id]


def test_shards_of_another_schema_are_written_again(dataset: Dataset) -> None:
    """Motion tables of an earlier version lack the camera, and still serve."""
    write_shards(dataset, SMALL)
    before, path = tars(dataset), dataset.root / "shards" / "index.json"
    path.write_text(path.read_text().replace(f'"schema": {SHARD_SCHEMA}', '"schema": 2'))
    with pytest.raises(StoreError, match="of another version"):
        read_index(dataset.root)
    for film in dataset.folders():
        table = parquet.read_table(film.table_path("motion"))
        parquet.write_table(table.drop_columns(["camera_kind", "camera_direction"]), film.table_path("motion"))
    assert write_shards(dataset, SMALL) == read_index(dataset.root)
    assert {sample.camera.kind for sample in samples_of(dataset)} == {None}
    assert tars(dataset).keys() == before.keys()


def test_stale_shards_are_removed_and_foreign_files_kept(dataset: Dataset) -> None:
    write_shards(dataset, ShardSettings(samples=1))
    many = set(tars(dataset))
    foreign = dataset.root / "shards" / "train" / "notes.tar"
    foreign.write_bytes(b"mine")
    index = write_shards(dataset, ShardSettings(samples=100))
    assert set(tars(dataset)) == {shard.name for shard in index.shards} | {"train/notes.tar"}
    assert len(many) > len(index.shards)


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_clip_file_is_named_and_earlier_shards_stay(dataset: Dataset, damage: str) -> None:
    write_shards(dataset, SMALL)
    before = tars(dataset)
    clip_id = change(dataset, "captions", Caption, S="owl", film=1)
    path = dataset.folders()[1].clip_path(clip_id)
    content = path.read_bytes()
    path.unlink()
    if damage == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RecordError, match="animegamer build") as raised:
        write_shards(dataset, ShardSettings(samples=2))
    assert raised.value.record_id == clip_id
    assert str(path) in raised.value.reason
    assert tars(dataset) == before


def test_a_killed_run_leaves_no_half_written_shard_and_the_next_one_cleans_up(dataset: Dataset) -> None:
    code = WITHOUT_TORCH + (
        "import sys, pathlib, time; from pipeline.publish.shards import *;"
        "f = lambda done, total: (print(done, flush=True), time.sleep(60));"
        "write_shards(Dataset(pathlib.Path(sys.argv[1])), ShardSettings(samples=3), f)"
    )
    write_shards(dataset, ShardSettings(samples=100))
    before = tars(dataset)
    command = [sys.executable, "-c", code, str(dataset.root)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    left = tars(dataset)
    hidden = {name for name in left if Path(name).name.startswith(".")}
    assert hidden
    assert {name: left[name] for name in left.keys() - hidden} == before
    index = write_shards(dataset, SMALL)
    assert set(tars(dataset)) == {shard.name for shard in index.shards}


# --- other people's readers


@pytest.fixture
def published(dataset: Dataset) -> tuple[Dataset, Index]:
    return dataset, write_shards(dataset, SMALL)


@pytest.mark.parametrize("split", ["train", "val"])
def test_webdataset_reads_it(published: tuple[Dataset, Index], split: str) -> None:
    dataset, index = published
    urls = [str(dataset.root / "shards" / shard.name) for shard in index.shards if shard.split == split]
    read = list(webdataset.WebDataset(urls, shardshuffle=False).decode())
    assert len(read) == index.counts.split[split] > 0
    by_id = {sample.clip_id: sample for sample in samples_of(dataset) if sample.split == split}
    for one in read:
        sample = by_id[one["__key__"]]
        assert one["json"] == sample.model_dump(mode="json")
        assert one["mp4"] == dataset.folder(sample.film_id).clip_path(sample.clip_id).read_bytes()
        assert one["txt"].startswith("Character: ")


def test_hugging_face_datasets_reads_it(
    published: tuple[Dataset, Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    dataset, index = published
    files = {
        split: [str(dataset.root / "shards" / shard.name) for shard in index.shards if shard.split == split]
        for split in ("train", "val")
    }
    features = datasets.Features._from_yaml_list(hub_features())
    loaded = datasets.load_dataset("webdataset", data_files=files, features=features, cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == index.counts.split
    expected = {sample.clip_id: sample for sample in samples_of(dataset)}
    for rows in loaded.values():
        for row in rows:
            sample = expected.pop(row["__key__"])
            assert row["json"] == sample.model_dump(mode="json")
            assert row["mp4"] == dataset.folder(sample.film_id).clip_path(sample.clip_id).read_bytes()
    assert not expected
