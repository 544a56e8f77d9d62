"""The order of training examples, worked out from the seed and the step alone.

Every epoch has its own permutation of all items, and the epochs follow each other in one endless row. The batch of a
step is a slice of that row, and the share of a process a slice of the batch. So

- each item comes exactly once in an epoch, and none is dropped at its end: a batch may reach over into the next epoch;
- N processes together see what one with the same global batch sees, in the same steps;
- the step is the whole position: nothing else is stored to go on exactly where a run stopped.

The permutation comes from raw Philox numbers, which numpy promises never to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.random import Philox
from numpy.typing import NDArray
from torch.utils.data import Sampler

from pipeline.core.errors import UserError

_ORDER, _DRAWS, _NOISE = 0, 1, 2
"""Streams of random numbers that share the key (seed, epoch)."""


@dataclass(frozen=True)
class Position:
    """One item of one epoch; what is random about it follows from its place."""

    epoch: int
    item: int


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """A permutation of `range(count)`, the same one for the same seed and epoch on every machine."""
    keys = Philox(key=[seed, epoch], counter=[0, 0, 0, _ORDER]).random_raw(count)
    order = np.argsort(keys, kind="stable")
    order.flags.writeable = False  # it is shared by all that ask
    return order


def draw(seed: int, place: Position, choices: int) -> int:
    """A number from 0 to `choices - 1`, with equal weights, that belongs to this seed and place."""
    raw = int(Philox(key=[seed, place.epoch], counter=[place.item, 0, 0, _DRAWS]).random_raw())
    return raw * choices >> 64


def generator(seed: int, place: Position) -> torch.Generator:
    """A generator on the CPU for all else that is random about an example: noise, timestep, dropout."""
    raw = int(Philox(key=[seed, place.epoch], counter=[place.item, 0, 0, _NOISE]).random_raw())
    return torch.Generator().manual_seed(raw >> 1)  # torch takes signed numbers


class Batches(Sampler[list[Position]]):
    """The batches of one process, from one step to another: a `batch_sampler` for torch's DataLoader.

    The DataLoader keeps their order whatever its number of workers.
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, *, steps: range, process: int = 0, processes: int = 1
    ) -> None:
        """Describe them.

        Args:
            count: items in an epoch.
            batch_size: items of all processes together in a step; where gradients are accumulated, a step is one pass.
            seed: of the order; 0 or more.
            steps: which steps to give, such as `range(done, steps_in_all)`.
            process: number of this process.
            processes: how many share a batch; `batch_size` is a multiple of it.

        Raises:
            UserError: there is nothing to train on, or the batch cannot be shared out evenly.
        """
        if count < 1:
            raise UserError("there is not one example to train on: look at the split and at the settings of windows")
        if batch_size < 1 or batch_size % processes:
            raise UserError(f"a batch of {batch_size} cannot be shared by {processes} processes: take a multiple")
        self.count, self.batch_size, self.seed, self.steps = count, batch_size, seed, steps
        self.process, self.share = process, batch_size // processes

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[Position]]:
        for step in self.steps:
            first = step * self.batch_size + self.process * self.share
            yield [self._place(position) for position in range(first, first + self.share)]

    def _place(self, position: int) -> Position:
        epoch, within = divmod(position, self.count)
        return Position(epoch, int(epoch_order(self.seed, epoch, self.count)[within]))
