"""Validation of the phases: shares of the processes, and clips of the whole split."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.networks.tiny_baselines import brief_baseline
from training.baselines.folder import BaselineFolder
from training.baselines.phases import GCPhase
from training.config import ValidationSettings
from training.phase import Share
from training.phases.game import GamePhase
from training.phases.shot import ShotPhase

VALIDATION = ValidationSettings(clips=4, pictures=0)


@pytest.mark.parametrize("processes", [1, 3, 8])
@pytest.mark.parametrize("count", [1, 5, 8])
def test_all_values_come_in_order_and_every_process_computes_as_many(processes: int, count: int) -> None:
    items = list(range(count))
    asked = [asked_of(process, processes, items) for process in range(processes)]
    assert len({len(own) for own in asked}) == 1
    gathered = torch.cat([torch.stack([value(item) for item in own]) for own in asked])
    found = Share(0, processes, gather=lambda _rows: gathered).values(items, value)
    assert torch.equal(found, torch.stack([value(item) for item in items]))


def asked_of(process: int, processes: int, items: list[int]) -> list[int]:
    """Items that a process computes."""
    own: list[int] = []
    Share(process, processes, lambda rows: rows.repeat(processes, 1)).values(items, lambda item: seen(item, own))
    return own


def value(item: int) -> Tensor:
    return torch.tensor([item, item**2], dtype=torch.float32)


def seen(item: int, own: list[int]) -> Tensor:
    own.append(item)
    return value(item)


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
    shots = Shots("joint", held_out, held_out, held_out, held_out, VALIDATION, None, None)  # type: ignore[arg-type]
    clips = Clips(held_out, held_out, held_out, VALIDATION.clips, BaselineFolder.open(brief_baseline("gc")))
    turns = Turns("game", held_out, held_out, held_out, held_out, VALIDATION, None, None)  # type: ignore[arg-type]
    for validate in (
        lambda: shots.validate(held_out, torch.device("cpu"), None),
        lambda: clips.validate(held_out, torch.device("cpu"), None),
        lambda: turns._means(held_out, torch.device("cpu"), len(held_out), held_out.longest),
    ):
        held_out.items.clear()
        assert validate()["loss"] == 1
        assert sorted(set(held_out.items)) == [5, 15, 25, 35]
