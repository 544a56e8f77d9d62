"""Windows of turns: how far they reach back, and how often they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from models.config import Continues
from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from training.config import WindowSettings
from training.data.order import Batches, Position, begin_reading
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import Window, Windows, continued

STRICT = WindowSettings(across_scenes=False, most_gap=0)
GAPS = WindowSettings(across_scenes=False, most_gap=1)
CUTS = WindowSettings(across_scenes=True, most_gap=0)
FREE = WindowSettings(across_scenes=True, most_gap=1)


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
            CUTS.model_copy(update={"most_turns": 3}),
            [[0], [0, 1], [0, 1, 2], [4], [4, 5], [4, 5, 6], [8], [8, 9], [8, 9, 10], [9, 10, 11]],
        ),
        (GAPS, [[0], [0, 1], [0, 1, 2], [4], [4, 5], [6], [6, 8], [9], [9, 10], [9, 10, 11]]),
        (
            FREE,  # 3 opens a scene, so 2 and 4 are also apart by a cut; 7 is in the middle of one
            [
                *([0], [0, 1], [0, 1, 2], [4], [4, 5], [4, 5, 6], [4, 5, 6, 8]),
                *([4, 5, 6, 8, 9], [5, 6, 8, 9, 10], [6, 8, 9, 10, 11]),
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


@pytest.mark.parametrize(
    ("continues", "expected"),
    [("no", {}), ("scene", {1: 0, 2: 1, 5: 4, 10: 9, 11: 10}), ("place", {1: 0, 2: 1, 5: 4, 6: 5, 10: 9, 11: 10})],
)
def test_a_shot_continues_the_clip_directly_before_in_its_scene_or_its_place(
    turns: tuple[RecordedTurn, ...], continues: Continues, expected: dict[int, int]
) -> None:
    line = "Motion: run; Background: {}."
    told = [
        turn.model_copy(update={"instruction": line.format("beach" if turn.sample.index in (5, 6) else turn.clip_id)})
        for turn in turns[:10]
    ]
    befores = zip(told, continued(told, continues), strict=True)
    assert {turn.sample.index: before.sample.index for turn, before in befores if before} == expected


def test_a_turn_that_overlaps_is_in_no_window_and_no_gap(turns: tuple[RecordedTurn, ...]) -> None:
    def overlapping(turn: RecordedTurn) -> RecordedTurn:
        return turn.model_copy(update={"sample": turn.sample.model_copy(update={"overlap_seconds": 0.5})})

    marked = [overlapping(turn) if turn.sample.index in (2, 5) else turn for turn in turns[:10]]
    windows = Windows(marked, CUTS.model_copy(update={"most_turns": 9}))
    found = [indices(windows.longest(item)) for item in range(len(windows))]
    assert found == [[0], [0, 1], [4], [4, 6], [8], [8, 9], [8, 9, 10], [8, 9, 10, 11]]


def film_of(turn: RecordedTurn, clips: int, dropped: float) -> list[RecordedTurn]:
    """A long film in scenes of four clips, of which a share was dropped at random."""
    kept = np.random.default_rng(0).random(clips) >= dropped
    samples = (turn.sample.model_copy(update={"index": at, "scene": at // 4}) for at in np.flatnonzero(kept).tolist())
    return [turn.model_copy(update={"sample": sample}) for sample in samples]


@pytest.mark.parametrize(
    ("dropped", "reached"), [(0.0, (1.0, 1.0)), (0.2, (0.41, 0.59)), (0.3, (0.24, 0.41))], ids=["0", "20%", "30%"]
)
def test_every_length_is_as_frequent_whatever_was_dropped(
    turns: tuple[RecordedTurn, ...], dropped: float, reached: tuple[float, float]
) -> None:
    """`reached` is the share of turns that have four past ones, without gaps and with gaps of one clip."""
    film = film_of(turns[0], 10_000, dropped)
    for settings, share in zip((CUTS, FREE), reached, strict=True):
        windows = Windows(film, settings)
        drawn = Counter(len(windows.at(Position(3, item)).turns) for item in range(len(windows)))
        assert sorted(drawn) == [1, 2, 3, 4, 5]
        assert tuple(drawn[length] for length in sorted(drawn)) == windows.lengths
        assert max(drawn.values()) - min(drawn.values()) <= 1
        assert windows.reached[4] / len(windows) == pytest.approx(share, abs=0.03)


def test_a_share_of_the_windows_has_the_greatest_length_and_the_others_share_the_rest(
    turns: tuple[RecordedTurn, ...],
) -> None:
    film = film_of(turns[0], 1_000, dropped=0.2)
    windows = Windows(film, FREE.model_copy(update={"longest_share": 0.6}))
    assert windows.lengths == (81, 81, 81, 80, 484)
    drawn = Counter(len(windows.at(Position(3, item)).turns) for item in range(len(windows)))
    assert tuple(drawn[length] for length in sorted(drawn)) == windows.lengths
    ends = [windows.at(Position(epoch, item)).target.clip_id for epoch in range(9) for item in range(484)]
    assert max(Counter(ends).values()) - min(Counter(ends).values()) <= 1
    (alone,) = Windows(film[:1], FREE.model_copy(update={"longest_share": 0.6})).lengths
    assert alone == 1


def test_the_windows_of_a_length_end_with_every_turn_before_any_a_second_time(turns: tuple[RecordedTurn, ...]) -> None:
    windows = Windows(turns, FREE, seed=1)
    for length in (1, 3, 5):
        ends = [
            window.target.clip_id
            for epoch in range(20)
            for window in (windows.at(Position(epoch, item)) for item in range(len(windows)))
            if len(window.turns) == length
        ]
        reached = windows.reached[length - 1]
        rounds = [ends[first : first + reached] for first in range(0, len(ends) - reached + 1, reached)]
        assert len(rounds) >= 3
        assert all(len(set(each)) == reached for each in rounds)
        assert len(set(map(tuple, rounds))) > 1


def test_gaps_are_counted_in_clips(turns: tuple[RecordedTurn, ...]) -> None:
    def longest(gap: int) -> list[int]:
        settings = FREE.model_copy(update={"most_gap": gap})
        film = [turn for turn in film_of(turns[0], 8, 0) if turn.sample.index not in (1, 2)]
        return [len(Windows(film, settings).longest(item).turns) for item in range(6)]

    assert longest(1) == [1, 1, 2, 3, 4, 5]
    assert longest(2) == [1, 2, 3, 4, 5, 5]


def flat(batches: Sequence[Sequence[Position]]) -> list[Position]:
    return list(chain.from_iterable(batches))


class _Read(Dataset[tuple[int, int, int]]):
    """Dataset of windows as read by a DataLoader's worker."""

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
        loader = DataLoader(
            _Read(windows), batch_sampler=batches, num_workers=workers, collate_fn=list, worker_init_fn=begin_reading
        )
        got = list(loader)
        expected = [[(p.epoch, p.item, len(windows.at(p).turns)) for p in batch] for batch in batches]
        assert got == expected
        seen += flat(got)
    assert Counter(seen).most_common(1)[0][1] == 1
    assert len(seen) == 4 * len(windows)
    assert {(epoch, item) for epoch, item, _ in seen} == {(e, i) for e in range(4) for i in range(len(windows))}
