"""Windows of turns and their order: valid windows, each item once per epoch, and exact resumption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from training.config import WindowSettings
from training.data.order import Batches, Position, draw, epoch_order
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import Window, Windows

STRICT = WindowSettings(across_scenes=False, across_gaps=False)
FREE = WindowSettings(across_scenes=True, across_gaps=True)


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedTurn, ...]:
    """Two films of four scenes of three clips; clips 3 and 7 of both and 5 of the second were dropped."""
    root = tmp_path_factory.mktemp("dataset")
    settings = ShardSettings(samples=2, val_share=0)
    write_shards(make_dataset(root, scenes=4, clips=3, captioner=MODEL), settings)
    return Catalog.read(open_shards(root, "train")).turns


def indices(window: Window) -> list[int]:
    return [turn.sample.index for turn in window.turns]


@pytest.mark.parametrize(
    ("settings", "first_film"),
    [
        (STRICT, [[0], [0, 1], [0, 1, 2], [4], [4, 5], [6], [8], [9], [9, 10], [9, 10, 11]]),
        (
            WindowSettings(across_scenes=True, across_gaps=False, most_turns=3),
            [[0], [0, 1], [0, 1, 2], [4], [4, 5], [4, 5, 6], [8], [8, 9], [8, 9, 10], [9, 10, 11]],
        ),
        (
            WindowSettings(across_scenes=False, across_gaps=True),
            [[0], [0, 1], [0, 1, 2], [4], [4, 5], [6], [6, 8], [9], [9, 10], [9, 10, 11]],
        ),
        (
            FREE,
            [
                *([0], [0, 1], [0, 1, 2], [0, 1, 2, 4], [0, 1, 2, 4, 5]),
                *([1, 2, 4, 5, 6], [2, 4, 5, 6, 8], [4, 5, 6, 8, 9], [5, 6, 8, 9, 10], [6, 8, 9, 10, 11]),
            ],
        ),
    ],
)
def test_windows_reach_back_as_far_as_they_may(
    turns: tuple[RecordedTurn, ...], settings: WindowSettings, first_film: list[list[int]]
) -> None:
    windows = Windows(turns, settings)
    assert [indices(windows.longest(item)) for item in range(10)] == first_film
    assert indices(windows.longest(10)) == [0]  # the second film is independent of the first


def test_a_turn_that_overlaps_is_in_no_window_and_no_gap(turns: tuple[RecordedTurn, ...]) -> None:
    def overlapping(turn: RecordedTurn) -> RecordedTurn:
        return turn.model_copy(update={"sample": turn.sample.model_copy(update={"overlap_seconds": 0.5})})

    marked = [overlapping(turn) if turn.sample.index in (2, 5) else turn for turn in turns[:10]]
    windows = Windows(marked, WindowSettings(across_scenes=True, across_gaps=False, most_turns=9))
    found = [indices(windows.longest(item)) for item in range(len(windows))]
    assert found == [[0], [0, 1], [4], [4, 6], [8], [8, 9], [8, 9, 10], [8, 9, 10, 11]]


def test_a_window_ends_with_its_item_and_holds_one_film_in_time_order(turns: tuple[RecordedTurn, ...]) -> None:
    windows = Windows(turns, FREE, seed=3)
    assert len(windows) == len(turns)
    for epoch in range(5):
        for item, turn in enumerate(turns):
            window = windows.at(Position(epoch, item))
            assert window.target == turn
            assert window.past == window.turns[:-1]
            assert len({turn.sample.film_id for turn in window.turns}) == 1
            assert all(one.sample.start_seconds < other.sample.start_seconds for one, other in pairwise(window.turns))


def test_every_window_length_is_equally_likely(turns: tuple[RecordedTurn, ...]) -> None:
    windows = Windows(turns, FREE, seed=1)
    drawn = Counter(len(windows.at(Position(epoch, 8)).turns) for epoch in range(5000))
    assert sorted(drawn) == [1, 2, 3, 4, 5]
    assert min(drawn.values()) > 900  # 1000 each; 900 is three and a half standard deviations off
    other = Windows(turns, FREE, seed=2)
    assert any(other.at(Position(0, i)) != windows.at(Position(0, i)) for i in range(len(turns)))
    assert [windows.at(Position(7, i)) for i in range(9)] == [windows.at(Position(7, i)) for i in range(9)]


def test_a_turn_without_instruction_is_like_a_dropped_clip(turns: tuple[RecordedTurn, ...]) -> None:
    silent = [turn.model_copy(update={"instruction": ""}) if place == 1 else turn for place, turn in enumerate(turns)]
    windows = Windows(silent, WindowSettings(across_gaps=False))
    assert len(windows) == len(turns) - 1
    assert [indices(windows.longest(item)) for item in range(3)] == [[0], [2], [4]]
    assert indices(Windows(silent, FREE).longest(1)) == [0, 2]


def test_every_epoch_is_another_permutation() -> None:
    orders = [epoch_order(seed, epoch, 1000) for seed in (0, 1) for epoch in (0, 1)]
    for order in orders:
        assert sorted(order) == list(range(1000))
    assert len({tuple(order) for order in orders}) == 4
    # it may never change, or runs could not be continued after an update of numpy
    assert epoch_order(0, 0, 20_000)[:5].tolist() == [10614, 7552, 9232, 5820, 9334]
    assert [draw(1, Position(2, item), 5) for item in range(6)] == [2, 0, 3, 2, 4, 3]


def flat(batches: Sequence[Sequence[Position]]) -> list[Position]:
    return list(chain.from_iterable(batches))


@pytest.mark.parametrize(("count", "batch_size"), [(10, 4), (7, 7), (3, 8), (101, 16)])
def test_every_item_occurs_once_per_epoch_although_batches_cross_epochs(count: int, batch_size: int) -> None:
    steps = -(-3 * count // batch_size)
    batches = list(Batches(count, batch_size, 5, steps=range(steps)))
    assert {len(batch) for batch in batches} == {batch_size}
    row = flat(batches)
    for epoch in range(3):
        assert [place.item for place in row if place.epoch == epoch] == epoch_order(5, epoch, count).tolist()
    assert [place.epoch for place in row] == sorted(place.epoch for place in row)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_together_read_the_same_as_one(processes: int) -> None:
    alone = list(Batches(21, 8, 0, steps=range(12)))
    shares = [Batches(21, 8, 0, steps=range(12), process=rank, processes=processes) for rank in range(processes)]
    assert [flat(step) for step in zip(*shares, strict=True)] == alone


def test_a_run_is_resumed_at_its_position() -> None:
    whole = list(Batches(10, 4, 9, steps=range(20)))
    assert list(Batches(10, 4, 9, steps=range(13, 20))) == whole[13:]
    assert len(Batches(10, 4, 9, steps=range(13, 20))) == 7


def test_indivisible_batches_are_errors() -> None:
    with pytest.raises(UserError, match="a batch of 6 cannot be shared by 4 processes"):
        Batches(10, 6, 0, steps=range(1), processes=4)
    with pytest.raises(UserError, match="no examples to train on"):
        Batches(0, 6, 0, steps=range(1))


class _Read(Dataset[tuple[int, int, int]]):
    """Data set of windows as read by a DataLoader's worker."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __getitem__(self, place: Position) -> tuple[int, int, int]:
        # the workers are slow alternately, so that they would overtake each other if they could
        np.linalg.svd(np.ones((20 * (place.item % 5),) * 2))
        return place.epoch, place.item, len(self.windows.at(place).turns)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_ranks_and_workers_together_cover_all_items(turns: tuple[RecordedTurn, ...], workers: int) -> None:
    windows = Windows(turns, FREE)
    steps = range(len(windows))  # of four: four epochs
    seen = []
    for rank in range(2):
        batches = Batches(len(windows), 4, 0, steps=steps, process=rank, processes=2)
        loader = DataLoader(_Read(windows), batch_sampler=batches, num_workers=workers, collate_fn=list)
        got = list(loader)
        expected = [[(p.epoch, p.item, len(windows.at(p).turns)) for p in batch] for batch in batches]
        assert got == expected
        seen += flat(got)
    assert Counter(seen).most_common(1)[0][1] == 1
    assert len(seen) == 4 * len(windows)
    assert {(epoch, item) for epoch, item, _ in seen} == {(e, i) for e in range(4) for i in range(len(windows))}
