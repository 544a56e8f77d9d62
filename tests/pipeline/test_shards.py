import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import webdataset
from pydantic import ValidationError

from pipeline.config import ShardSettings
from pipeline.records import Caption, Clip, Motion, RecordError, Verdict, make_film_id
from pipeline.samples import Sample, hub_features, split_of
from pipeline.shards import Index, read_index, write_shards
from pipeline.store import Dataset
from tests.made_dataset import EDGES, MODEL, make_dataset, scene_seconds

ROOT = Path(__file__).parents[2]
SMALL = ShardSettings(samples=3)
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"
"""Start of a program for which torch is not installed: shards are written without it, and start seconds sooner."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("original"), captioner=MODEL)


@pytest.fixture
def dataset(original: Dataset, tmp_path: Path) -> Dataset:
    return Dataset(shutil.copytree(original.root, tmp_path / "data"))


def tars(dataset: Dataset) -> dict[str, bytes]:
    root = dataset.root / "shards"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.tar"))}


def samples_of(dataset: Dataset) -> list[Sample]:
    found = []
    for shard in read_index(dataset.root).shards:
        with tarfile.open(dataset.root / "shards" / shard.name) as tar:
            for name in tar.getnames():
                if name.endswith(".json"):
                    found.append(Sample.model_validate_json(tar.extractfile(name).read()))
    return found


def change(dataset: Dataset, table: str, record: type, film: int = 0, **fields) -> str:
    """Give the first row of a film's table other values; its clip id."""
    folder = dataset.folders()[film]
    first, *rest = folder.read(table, record)
    folder.write(table, [first.model_copy(update=fields), *rest])
    return first.clip_id


# --- what is written


def test_a_sample_has_exactly_the_fields_of_the_contract(dataset: Dataset) -> None:
    write_shards(dataset, SMALL)
    shard = read_index(dataset.root).shards[0]
    with tarfile.open(dataset.root / "shards" / shard.name) as tar:
        text = tar.extractfile(f"{shard.first_clip}.json").read().decode()
        line = tar.extractfile(f"{shard.first_clip}.txt").read().decode()
    clip = dataset.folders()[0].read("clips", Clip)[0]
    assert json.loads(text) == {
        "schema": 1,
        "clip_id": clip.clip_id,
        "film_id": clip.film_id,
        "scene": 0,
        "index": 0,
        "start_seconds": clip.start_seconds,
        "end_seconds": clip.end_seconds,
        "split": "train",
        "fps": "8",
        "frames": 16,
        "motion": {
            "scope_px": 0.5,
            "level": 1,
            "flow_model": "dis",
            "edges": list(EDGES),
            "camera_px": 0.125,
            "unique_frames": 1,
        },
        "caption": {
            "source": MODEL,
            "S": "fox",
            "MD": "rides a broom over the café",
            "EV": "夏の海",
            "MA": "barely",
            "SC": 0,
            "ET": 1,
            "ST": 1,
            "characters": [],
            "reviewed": False,
        },
    }
    assert "夏の海" in text
    assert line == "Character: fox; Motion: barely rides a broom over the café; Background: 夏の海."


def test_what_rules_do_not_measure_is_null_and_left_out_of_the_line(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, captioner="rules", films=1)
    write_shards(dataset, SMALL)
    caption = samples_of(dataset)[0].caption
    assert (caption.source, caption.S, caption.SC, caption.characters) == ("rules", None, None, None)
    with tarfile.open(dataset.root / "shards" / read_index(dataset.root).shards[0].name) as tar:
        name = next(name for name in tar.getnames() if name.endswith(".txt"))
        assert tar.extractfile(name).read() == b"Motion: barely stays still."


def test_the_kept_clips_and_no_others_are_published(dataset: Dataset) -> None:
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


def test_a_quarantined_or_missing_caption_leaves_every_tag_null(dataset: Dataset) -> None:
    quarantined = change(dataset, "captions", Caption, fault="the reply has no <S>")
    folder = dataset.folders()[1]
    missing, *captions = folder.read("captions", Caption)
    folder.write("captions", captions)
    write_shards(dataset, SMALL)
    found = {sample.clip_id: sample.caption for sample in samples_of(dataset)}
    assert found[quarantined].model_dump() == {
        **dict.fromkeys(("S", "MD", "EV", "MA", "SC", "ET", "ST", "characters")),
        "source": MODEL,
        "reviewed": False,
    }
    assert found[missing.clip_id].source is None


# --- the same bytes, whole or not at all


def test_the_same_input_gives_the_same_bytes_in_another_process_and_folder(dataset: Dataset, tmp_path: Path) -> None:
    write_shards(dataset, SMALL)
    code = WITHOUT_TORCH + (
        "import sys, pathlib; from tests.made_dataset import *; from pipeline.shards import *;"
        "write_shards(make_dataset(pathlib.Path(sys.argv[1]), captioner=MODEL), ShardSettings(samples=3))"
    )
    other = Dataset(tmp_path / "elsewhere")
    command = [sys.executable, "-c", code, str(other.root)]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "7"})
    assert tars(dataset) == tars(other)
    assert read_index(dataset.root) == read_index(other.root)


def test_shards_that_would_not_change_are_left_alone_and_damaged_ones_written_again(dataset: Dataset) -> None:
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


def test_stale_shards_go_but_files_of_others_stay(dataset: Dataset) -> None:
    write_shards(dataset, ShardSettings(samples=1))
    many = set(tars(dataset))
    foreign = dataset.root / "shards" / "train" / "notes.tar"
    foreign.write_bytes(b"mine")
    index = write_shards(dataset, ShardSettings(samples=100))
    assert set(tars(dataset)) == {shard.name for shard in index.shards} | {"train/notes.tar"}
    assert len(many) > len(index.shards)


def test_a_broken_index_is_replaced(dataset: Dataset) -> None:
    index = write_shards(dataset, SMALL)
    (dataset.root / "shards" / "index.json").write_text('{"schema": 1}')
    assert write_shards(dataset, SMALL) == index


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_clip_file_is_named_and_the_shards_of_before_stay(dataset: Dataset, damage: str) -> None:
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
        "import sys, pathlib, time; from pipeline.shards import *;"
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


# --- what is refused


@pytest.mark.parametrize(
    ("table", "record", "fields", "reason"),
    [
        ("motion", Motion, {"flow_model": "memflow"}, "by memflow, the data set's by dis"),
        ("motion", Motion, {"clip_id": "other"}, "its motion is not measured"),
        ("captions", Caption, {"source": "rules"}, f"by rules, the data set's by {MODEL}"),
        ("verdicts", Verdict, {"level": None}, "its motion is not measured"),
        ("verdicts", Verdict, {"level": 6}, "motion.level: Input should be less than or equal to 5"),
        ("clips", Clip, {"clip_id": "other"}, "no such clip was cut"),
    ],
)
def test_a_clip_that_cannot_be_published_is_named(dataset: Dataset, table, record, fields, reason: str) -> None:
    first = dataset.folders()[0].read("clips", Clip)[0].clip_id
    change(dataset, table, record, **fields)
    with pytest.raises(RecordError, match=reason) as raised:
        write_shards(dataset, SMALL)
    assert raised.value.record_id == first
    assert tars(dataset) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"schema": 1', '"schema": 2'),
        ('"scene": 0', '"scene": "0"'),
        ('"scope_px": 0.5', '"scope_px": NaN'),
        ('"level": 1', '"level": true'),
        ('"fps": "8"', '"fps": "eight"'),
        ('"frames": 16', '"frames": 16, "mood": "sad"'),
        ('"split": "train"', '"split": "test"'),
    ],
)
def test_the_sample_record_converts_nothing(dataset: Dataset, old: str, new: str) -> None:
    write_shards(dataset, SMALL)
    text = json.dumps(samples_of(dataset)[0].model_dump(mode="json"))
    assert Sample.model_validate_json(text)
    assert old in text
    with pytest.raises(ValidationError):
        Sample.model_validate_json(text.replace(old, new))


# --- the split


def random_film_ids(number: int) -> list[str]:
    chance = random.Random(5)
    return [make_film_id(f"film {chance.random()}", f"{chance.getrandbits(256):064x}") for _ in range(number)]


@pytest.mark.parametrize("share", [0.1, 0.2, 0.25, 0.5, 0.8])
def test_the_share_of_val_is_kept_in_every_long_film(share: float) -> None:
    settings = ShardSettings(val_share=share, block_seconds=60)
    for film_id in random_film_ids(50):
        seconds = range(0, 120 * 60, 5)
        val = sum(split_of(film_id, second, 120 * 60, settings) == "val" for second in seconds)
        assert val / len(seconds) == pytest.approx(share, abs=1.01 / 120)


@pytest.mark.parametrize("film_seconds", [10.0, 61.0, 125.0, 299.0, 596.5])
def test_a_short_film_has_both_splits_too(film_seconds: float) -> None:
    for film_id in random_film_ids(200):
        splits = Counter(split_of(film_id, film_seconds * n / 100, film_seconds, ShardSettings()) for n in range(100))
        assert 0.09 <= splits["val"] / 100 <= 0.25
        assert split_of(film_id, 0, film_seconds, ShardSettings()) == "train"


def test_which_block_is_val_differs_between_films() -> None:
    settings = ShardSettings(block_seconds=60)
    starts = Counter(
        next(block for block in range(10) if split_of(film_id, block * 60, 3600, settings) == "val")
        for film_id in random_film_ids(400)
    )
    assert set(starts) == {1, 2, 3, 4}
    assert min(starts.values()) > 60


def test_a_long_film_keeps_its_splits_when_more_of_it_is_used() -> None:
    for film_id in random_film_ids(20):
        for second in range(0, 600, 7):
            splits = {split_of(film_id, second, seconds, ShardSettings()) for seconds in (600.0, 1234.5, 7000.0)}
            assert len(splits) == 1


@pytest.mark.parametrize(("share", "split"), [(0.0, "train"), (1.0, "val")])
def test_all_of_a_film_can_go_to_one_split(share: float, split: str) -> None:
    settings = ShardSettings(val_share=share)
    assert {split_of("a-film-00000000", second, 600, settings) for second in range(600)} == {split}


def test_no_scene_lies_in_both_splits_and_no_verdict_moves_a_clip(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1, scenes=12, clips=3)
    settings = ShardSettings(samples=4, block_seconds=scene_seconds(3) * 0.7)
    write_shards(dataset, settings)
    before = {sample.clip_id: sample.split for sample in samples_of(dataset)}
    splits: dict[int, set[str]] = {}
    for sample in samples_of(dataset):
        splits.setdefault(sample.scene, set()).add(sample.split)
    assert all(len(split) == 1 for split in splits.values())
    assert set(before.values()) == {"train", "val"}
    folder = dataset.folders()[0]
    verdicts = folder.read("verdicts", Verdict)
    folder.write("verdicts", [v.model_copy(update={"keep": n % 2 == 0}) for n, v in enumerate(verdicts)])
    folder.write("captions", [])
    write_shards(dataset, settings)
    after = {sample.clip_id: sample.split for sample in samples_of(dataset)}
    common = before.keys() & after.keys()
    assert len(common) > 10
    assert {clip_id: before[clip_id] for clip_id in common} == {clip_id: after[clip_id] for clip_id in common}


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


def test_decord_reads_exactly_the_frames_of_a_sample(published: tuple[Dataset, Index], tmp_path: Path) -> None:
    decord = pytest.importorskip("decord")
    dataset, index = published
    with tarfile.open(dataset.root / "shards" / index.shards[0].name) as tar:
        tar.extract(f"{index.shards[0].first_clip}.mp4", tmp_path, filter="data")
    reader = decord.VideoReader(str(tmp_path / f"{index.shards[0].first_clip}.mp4"))
    assert reader.get_batch(range(len(reader))).shape == (16, 64, 96, 3)
    assert reader.get_avg_fps() == pytest.approx(8)
