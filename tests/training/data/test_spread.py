"""Choice of clips for validation, and the phases' use of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.networks.tiny_baselines import brief_baseline
from training.baselines.folder import BaselineFolder
from training.baselines.phases import GCPhase
from training.config import PreviewSettings
from training.data.order import spread
from training.phases.game import GamePhase
from training.phases.shot import ShotPhase

LOOKS = PreviewSettings(clips=4, pictures=0)


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [(0, 4, []), (3, 4, [0, 1, 2]), (4, 4, [0, 1, 2, 3]), (40, 4, [5, 15, 25, 35]), (10, 3, [1, 5, 8]), (9, 1, [4])],
)
def test_clips_are_the_middles_of_equal_parts(count: int, most: int, expected: list[int]) -> None:
    assert spread(count, most) == expected


def test_films_and_their_parts_are_met_by_their_length() -> None:
    film_of = [film for film, clips in (("one", 20), ("two", 40), ("three", 20)) for _ in range(clips)]
    chosen = spread(len(film_of), 8)
    assert [film_of[item] for item in chosen] == ["one"] * 2 + ["two"] * 4 + ["three"] * 2
    assert max(later - earlier for earlier, later in pairwise(chosen)) == 10


class Seen(nn.Module):
    """Network that gives a loss of 1 to every example; held-out examples that record the items asked for."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.items = count, list[int]()

    def __len__(self) -> int:
        return self.count

    def at_noise_level(self, item: int, _timestep: int = 0) -> int:
        self.items.append(item)
        return item

    longest = at_noise_level

    def forward(self, _batch: Any) -> dict[str, Tensor]:
        return {"loss": torch.ones(5)}


class Shots(ShotPhase):
    def collate(self, _examples: Any) -> Any:
        return Moved()


class Clips(GCPhase):
    def collate(self, _examples: Any) -> Any:
        return Moved()


class Turns(GamePhase):
    def collate(self, _examples: Any) -> Any:
        return Moved()


class Moved:
    """Batch without content."""

    def to(self, _device: torch.device) -> Moved:
        return self


def test_every_phase_measures_clips_of_the_whole_split() -> None:
    held_out: Any = Seen(40)
    shots = Shots("joint", held_out, held_out, held_out, held_out, LOOKS, None, None)  # type: ignore[arg-type]
    clips = Clips(held_out, held_out, held_out, LOOKS.clips, BaselineFolder.open(brief_baseline("gc")))
    turns = Turns("game", held_out, held_out, held_out, held_out, LOOKS, None, None)  # type: ignore[arg-type]
    for validate in (
        lambda: shots.validate(held_out, torch.device("cpu"), None),
        lambda: clips.validate(held_out, torch.device("cpu"), None),
        lambda: turns._means(held_out, torch.device("cpu"), len(held_out), held_out.longest),
    ):
        held_out.items.clear()
        assert validate()["loss"] == 1
        assert sorted(set(held_out.items)) == [5, 15, 25, 35]
