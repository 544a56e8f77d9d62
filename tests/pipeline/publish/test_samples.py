"""Samples: their splits, their fields, and clips that cannot become samples."""

from __future__ import annotations

import json
import random
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.measurements import Motion
from pipeline.core.records import Caption, Clip, RecordError, Verdict, make_film_id
from pipeline.core.store import Dataset
from pipeline.publish.samples import scene_splits, split_of
from pipeline.publish.shards import read_index, write_shards
from tests.support import records
from tests.support.datasets.dialogue import line, write_dialogue
from tests.support.datasets.made_dataset import EDGES, MODEL, make_dataset, scene_seconds
from tests.support.datasets.published_clips import SMALL, Row, change, samples_of, tars


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


def test_the_val_block_differs_between_films() -> None:
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


def test_films_of_one_scene_go_to_val_as_a_whole_one_in_five() -> None:
    """26 films of 8 seconds, as of a series of trailers."""
    splits = []
    for place in range(26):
        scene = records.scene(film_id=f"short-{place:08x}", end_seconds=8.0)
        splits.append(scene_splits([scene], [], place, ShardSettings())[0])
    assert [place for place, split in enumerate(splits) if split == "val"] == [4, 9, 14, 19, 24]


def test_episodes_go_to_a_split_as_a_whole() -> None:
    scenes = [
        records.scene(scene=number, start_seconds=60.0 * number, end_seconds=60.0 * number + 60) for number in range(9)
    ]
    whole = [scene_splits(scenes, [], place, ShardSettings(split="film", val_share=0.25)) for place in range(8)]
    assert [set(splits.values()) for splits in whole] == [*[{"train"}] * 3, {"val"}, *[{"train"}] * 3, {"val"}]


# --- fields


def test_a_sample_has_exactly_the_fields_of_the_contract(dataset: Dataset) -> None:
    folder = dataset.folders()[0]
    folder.save_film(folder.film.model_copy(update={"series": "Kiki", "season": 2, "episode": 7, "language": "ja"}))
    write_shards(dataset, SMALL)
    shard = read_index(dataset.root).shards[0]
    with tarfile.open(dataset.root / "shards" / shard.name) as tar:
        text = tar.extractfile(f"{shard.first_clip}.json").read().decode()
        line = tar.extractfile(f"{shard.first_clip}.txt").read().decode()
    clip = dataset.folders()[0].read("clips", Clip)[0]
    assert json.loads(text) == {
        "schema": 6,
        "clip_id": clip.clip_id,
        "film_id": clip.film_id,
        "series": "Kiki",
        "season": 2,
        "episode": 7,
        "language": "ja",
        "scene": 0,
        "index": 0,
        "start_seconds": clip.start_seconds,
        "end_seconds": clip.end_seconds,
        "overlap_seconds": 0.0,
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
        "camera": {"kind": "static", "direction": None, "px": 0.125},
        "quality": {"sharpness": 0.5, "blockiness": 0.0, "banding": None},
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
            "actor": None,
            "others": None,
            "sentence": None,
            "flags": [],
            "reviewed": [],
        },
        "dialogue": None,
        "sound": None,
        "flags": [],
        "text_boxes": [{"left": 2, "top": 50, "right": 90, "bottom": 60}],
        "logo_boxes": [],
        "bars": {"left": 0, "top": 4, "right": 0, "bottom": 4},
    }
    assert "夏の海" in text
    assert line == "Character: fox; Motion: barely rides a broom over the café; Background: 夏の海."


def test_dialogue_is_clipped_to_each_clip(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1)
    [folder] = dataset.folders()
    write_dialogue(folder, line(0.5, 1.5, "first"), line(1.75, 3.0, "over the edge", speaker="Ponyo"))
    write_shards(dataset, SMALL)
    first, second, *others = sorted(samples_of(dataset), key=lambda sample: sample.start_seconds)
    start = first.start_seconds
    assert [(said.text, said.start_seconds, said.speaker) for said in first.dialogue or ()] == [
        ("first", round(0.5 - start, 3), None),
        ("over the edge", round(1.75 - start, 3), "Ponyo"),
    ]
    [rest] = second.dialogue or ()
    assert (rest.start_seconds, rest.end_seconds) == (0.0, round(3.0 - second.start_seconds, 3))
    assert {sample.dialogue for sample in others} == {()}


def test_fields_not_measured_by_rules_are_null_and_left_out_of_the_line(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, captioner="rules", films=1)
    write_shards(dataset, SMALL)
    caption = samples_of(dataset)[0].caption
    assert (caption.source, caption.S, caption.SC, caption.characters) == ("rules", None, None, None)
    with tarfile.open(dataset.root / "shards" / read_index(dataset.root).shards[0].name) as tar:
        name = next(name for name in tar.getnames() if name.endswith(".txt"))
        assert tar.extractfile(name).read() == b"Motion: barely stays still."


def test_a_quarantined_or_missing_caption_leaves_every_tag_null(dataset: Dataset) -> None:
    quarantined = change(dataset, "captions", Caption, fault="the reply has no <S>")
    folder = dataset.folders()[1]
    missing, *captions = folder.read("captions", Caption)
    folder.write("captions", captions)
    write_shards(dataset, SMALL)
    found = {sample.clip_id: sample.caption for sample in samples_of(dataset)}
    assert found[quarantined].model_dump() == {
        **dict.fromkeys(("S", "MD", "EV", "MA", "SC", "ET", "ST", "characters", "actor", "others", "sentence")),
        "source": MODEL,
        "flags": (),
        "reviewed": (),
    }
    assert found[missing.clip_id].source is None


# --- refusals


@pytest.mark.parametrize(
    ("table", "record", "fields", "reason"),
    [
        ("motion", Motion, {"flow_model": "memflow"}, "by memflow, the dataset's by dis"),
        ("motion", Motion, {"clip_id": "other"}, "its motion is not measured"),
        ("captions", Caption, {"source": "rules"}, f"by rules, the dataset's by {MODEL}"),
        ("verdicts", Verdict, {"level": None}, "its motion is not measured"),
        ("verdicts", Verdict, {"level": 6}, "motion.level: Input should be less than or equal to 5"),
        ("clips", Clip, {"clip_id": "other"}, "no such clip was cut"),
    ],
)
def test_a_clip_that_cannot_be_published_is_named(
    dataset: Dataset, table: str, record: type[Row], fields: dict[str, object], reason: str
) -> None:
    first = dataset.folders()[0].read("clips", Clip)[0].clip_id
    change(dataset, table, record, **fields)
    with pytest.raises(RecordError, match=reason) as raised:
        write_shards(dataset, SMALL)
    assert raised.value.record_id == first
    assert tars(dataset) == {}
