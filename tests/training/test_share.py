"""Shares of validation, for any numbers of items and processes: all values, in the order of the items."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from training.phase import ALONE, Share


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
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


def test_values_are_gathered_from_the_device_of_the_process() -> None:
    gathered: list[torch.device] = []

    def gather(rows: Tensor) -> Tensor:
        gathered.append(rows.device)
        return rows

    accelerator = SimpleNamespace(process_index=0, num_processes=1, device=torch.device("meta"), gather=gather)
    Share.of(accelerator).values([1, 2], value)  # type: ignore[arg-type]
    assert gathered == [torch.device("meta")]


def test_alone_a_process_computes_each_item_once() -> None:
    own: list[int] = []
    assert ALONE.values([3, 1, 2], lambda item: seen(item, own))[:, 0].tolist() == [3, 1, 2]
    assert own == [3, 1, 2]
