"""Splits: shares by blocks of time, films as a whole where they are short, and no scene in both."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.records import Verdict, make_film_id
from pipeline.publish.shards import write_shards
from pipeline.publish.splits import scene_splits, split_of
from tests.support import records
from tests.support.datasets.made_dataset import make_dataset, scene_seconds
from tests.support.datasets.published_clips import samples_of


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


def test_films_of_one_scene_go_to_val_as_a_whole_one_in_five() -> None:
    """26 films of 8 seconds, as of a series of trailers."""
    splits = []
    for place in range(26):
        scene = records.scene(film_id=f"short-{place:08x}", end_seconds=8.0)
        splits.append(scene_splits([scene], [], place, ShardSettings())[0])
    assert [place for place, split in enumerate(splits) if split == "val"] == [4, 9, 14, 19, 24]


def test_a_film_with_scenes_in_val_is_never_moved_as_a_whole() -> None:
    settings = ShardSettings(block_seconds=10)
    scenes = [records.scene(scene=n, start_seconds=5.0 * n, end_seconds=5.0 * n + 5) for n in range(40)]
    found = {place: scene_splits(scenes, [], place, settings) for place in range(10)}
    assert all(splits == found[0] for splits in found.values())
    assert set(found[0].values()) == {"train", "val"}


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_nothing_or_all_holds_for_short_films_too(share: float) -> None:
    settings = ShardSettings(val_share=share)
    scene = records.scene(end_seconds=8.0)
    assert {scene_splits([scene], [], place, settings)[0] for place in range(9)} == {"val" if share else "train"}
