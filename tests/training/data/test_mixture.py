"""Mixture of datasets: one set of levels, casts joined or apart, weights, splits, and datasets that do not mix."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.core.records import Caption
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import CAST, LEVEL_VALUES, MODEL, make_dataset
from training.data.mixture import Mixture, by_dataset
from training.data.order import Batches, Mixed, Position, generator, part_seed
from training.data.shards import open_shards
from training.data.sources import Source
from training.data.turns import Catalog, Part, RecordedTurn

OTHER_EDGES = (0.2, 0.4, 0.6, 0.8)


def write(root: Path, film: str, *, val_share: float = 0.3, **facts: Any) -> str:
    """Write a captioned dataset of one film, with other facts in its record."""
    dataset = make_dataset(root, films=1, scenes=5, clips=2, captioner=MODEL, names=(film,))
    dataset.save(dataset.record.model_copy(update=facts))
    write_shards(dataset, ShardSettings(samples=3, val_share=val_share))
    return str(root)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two datasets with the same cast: `hills` with a split `val`, `coast` without one and with other edges."""
    root = tmp_path_factory.mktemp("data")
    return write(root / "hills", "one.mkv"), write(root / "coast", "two.mkv", val_share=0, edges=OTHER_EDGES)


def alone(place: str, split: str = "train") -> Catalog:
    return Catalog.read(open_shards(place, split))  # type: ignore[arg-type]


def test_each_dataset_keeps_its_own_splits(places: tuple[str, str], tmp_path: Path) -> None:
    mixture = Mixture.of(places)
    for catalogs in (mixture.catalogs(tmp_path), mixture.catalogs(tmp_path)):  # read, then from the cached files
        assert list(catalogs) == ["train", "val"]
        ids = {split: [turn.clip_id for turn in catalog.turns] for split, catalog in catalogs.items()}
        assert ids["train"] == [turn.clip_id for place in places for turn in alone(place).turns]
        assert ids["val"] == [turn.clip_id for turn in alone(places[0], "val").turns]
        assert [len(part.turns) for part in catalogs["train"].parts] == [len(alone(place)) for place in places]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "coast-train.json",
        "hills-train.json",
        "hills-val.json",
    ]


def test_levels_are_binned_anew_by_one_set_of_edges(places: tuple[str, str]) -> None:
    mixture = Mixture.of(places)
    catalogs = mixture.catalogs()
    turns = [turn for catalog in catalogs.values() for turn in catalog.turns]
    (edges,) = {turn.sample.motion.edges for turn in turns}
    assert edges != OTHER_EDGES
    for turn in turns:
        motion = turn.sample.motion
        assert motion.level == 1 + sum(edge < motion.scope_px for edge in edges)
        assert turn.state.level == motion.level
    assert mixture.level_values(catalogs["train"]) == LEVEL_VALUES  # these clips have no other scopes


def test_casts_are_joined_by_name_or_kept_apart(places: tuple[str, str]) -> None:
    joined, apart = (Mixture.of(places, names).catalogs()["train"] for names in ("joined", "apart"))
    plain = [turn for place in places for turn in alone(place).turns]
    assert [turn.instruction for turn in joined.turns] == [turn.instruction for turn in plain]
    named = 0
    for turn, before in zip(apart.turns, plain, strict=True):
        own = "hills" if turn.sample.film_id == plain[0].sample.film_id else "coast"
        characters = before.sample.caption.characters or ()
        assert turn.sample.caption.characters == tuple(f"{own} {name}" for name in characters)
        assert [f"{own} {name}" in turn.instruction for name in characters] == [True] * len(characters)
        named += len(characters)
        if not characters:
            assert turn.instruction == before.instruction
    assert named
    assert (joined.renamed, len(apart.renamed)) == ("", 16)
    assert len({joined.fingerprint, apart.fingerprint, alone(places[0]).fingerprint}) == 3


def test_only_names_of_several_casts_change_and_only_whole_words(places: tuple[str, str], tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "made", films=1, scenes=5, clips=2, captioner=MODEL, names=("two.mkv",))
    folder = dataset.folders()[0]
    captions = [
        row.model_copy(
            update={
                "characters": (CAST[0], "Ponyo"),
                "actor": CAST[0],
                "sentence": f"{CAST[0]} meets {CAST[0]}ko and Ponyo.",
            }
        )
        for row in folder.read("captions", Caption)
    ]
    folder.write("captions", captions)
    write_shards(dataset, ShardSettings(samples=3, val_share=0))
    catalog = Mixture.of((places[0], str(dataset.root)), "apart").catalogs()["train"]
    turn = catalog.mixed[1].turns[0]
    assert turn.sample.caption.characters == (f"made {CAST[0]}", "Ponyo")
    assert turn.sample.caption.sentence == f"made {CAST[0]} meets {CAST[0]}ko and Ponyo."
    assert turn.instruction.startswith(f"Character: made {CAST[0]}, Ponyo; Motion: ")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("films/ponyo", Source("films/ponyo")),
        ("films/ponyo=2", Source("films/ponyo", 2)),
        ("s3://bucket/set=12", Source("s3://bucket/set", 12)),
        ("https://host/a=b", Source("https://host/a=b")),
    ],
)
def test_a_weight_follows_the_address(text: str, source: Source) -> None:
    assert Source.of(text) == source


class Letters:
    """Examples that return their dataset and position."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: Position) -> tuple[str, int, int]:
        assert 0 <= place.item < self.count
        return self.name, place.epoch, place.item


def test_clips_come_as_often_as_the_weight_each_time_with_other_noise() -> None:
    mixed = Mixed([Letters("a", 3), Letters("b", 2)], [2, 1])
    assert len(mixed) == 8
    order = Batches(len(mixed), 4, seed=5, steps=range(4))
    drawn = [mixed[place] for batch in order for place in batch]
    assert len(set(drawn)) == len(drawn) == 16, "no position of a dataset comes twice"
    first = Counter((name, item) for name, _, item in drawn[:8])
    assert first == {**{("a", item): 2 for item in range(3)}, **{("b", item): 1 for item in range(2)}}
    seeds = {generator(part_seed(7, number), Position(0, 0)).initial_seed() for number in range(3)}
    assert len(seeds) == 3
    assert part_seed(7, 0) == 7


def test_examples_are_made_by_dataset(places: tuple[str, str]) -> None:
    catalog = Mixture.of((places[0], f"{places[1]}=3")).catalogs()["train"]

    def make(turns: Sequence[RecordedTurn], number: int) -> Letters:
        return Letters(str(number), len(turns))

    sizes = [len(alone(place)) for place in places]
    assert len(by_dataset(catalog, make)) == sizes[0] + 3 * sizes[1]
    assert isinstance(by_dataset(alone(places[0]), make), Letters)
    assert alone(places[0]).parts == (Part(alone(places[0]).turns, 1),)


def of_one_film(places: tuple[str, str], folder: Path) -> list[str]:
    return [places[0], str(shutil.copytree(places[0], folder / "again"))]


def of_one_film_renamed(places: tuple[str, str], folder: Path) -> list[str]:
    again = of_one_film(places, folder)[1]
    index = Path(again) / "shards" / "index.json"
    index.write_text(index.read_text().replace("one-", "one-1989-"))  # its film and the names of its shards
    return [places[0], again]


def of_one_name(places: tuple[str, str], folder: Path) -> list[str]:
    return [places[0], str(shutil.copytree(places[1], folder / "hills"))]


def of_another_flow_model(places: tuple[str, str], folder: Path) -> list[str]:
    other = Path(shutil.copytree(places[1], folder / "raft"))
    index = other / "shards" / "index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "flow_model": "raft_small"}))
    return [places[0], str(other)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (of_one_film, r"is in hills \(as one-\w+\) and in again \(as one-\w+\): build one dataset without it"),
        (of_one_film_renamed, r"is in hills \(as one-(\w+)\) and in again \(as one-1989-\1\): build one dataset"),
        (of_one_name, "has 2 datasets of the name hills; rename a folder"),
        (
            of_another_flow_model,
            "optical-flow models, dis in hills and raft_small in raft: build all with one",
        ),
        (lambda places, _: [places[0], f"{places[1]}=0"], "has weight 0; use 1 or more, or leave the dataset out"),
        (lambda places, folder: [places[0], str(folder / "none")], "none/shards/index.json: no such file"),
    ],
)
def test_datasets_that_do_not_mix_are_refused(
    places: tuple[str, str],
    tmp_path: Path,
    make: Callable[[tuple[str, str], Path], list[str]],
    said: str,
) -> None:
    with pytest.raises(UserError, match=said):
        Mixture.of(make(places, tmp_path)).catalogs()
