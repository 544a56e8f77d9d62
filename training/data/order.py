"""Order of training examples: a function of seed and step alone.

Every epoch is a permutation of all items, and the epochs form one endless sequence. The batch of a step is a slice of
that sequence, and the share of a process is a slice of the batch. Therefore

- each item occurs exactly once per epoch and none is dropped: a batch may span two epochs;
- N processes together see the same examples in the same steps as one process with the same global batch;
- the step is the complete position: a resume needs no other state.

The permutation is computed from raw Philox numbers, whose stream numpy guarantees to be stable.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from types import MethodType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.random import Philox
from numpy.typing import NDArray
from torch.multiprocessing import set_sharing_strategy
from torch.utils.data import Sampler

from pipeline.core.errors import UserError

_ORDER, _DRAWS, _NOISE = 0, 1, 2
"""Random streams under the key (seed, epoch)."""


@dataclass(frozen=True)
class Position:
    """Position of an example. With the seed it determines all random numbers of the example."""

    epoch: int
    item: int
    slot: int = 0
    """Number of the example in its global batch, from 0."""
    slots: int = 1
    """Size of the global batch."""
    step: int = 0
    """Number of the step, from 0, for what all examples of a step share. Other random numbers do not depend on it."""


@lru_cache(maxsize=32)
def epoch_order(seed: int, epoch: int, count: int, kind: int = 0) -> NDArray[np.int64]:
    """Return a permutation of `range(count)`, identical on every machine for equal seed, epoch and kind.

    Kind 0 is the order of all examples, and each window length has another kind.
    """
    keys = Philox(key=[seed, epoch], counter=[0, 0, kind, _ORDER]).random_raw(count)
    order = np.argsort(keys, kind="stable")
    order.flags.writeable = False  # the cached array is shared between callers
    return order


def chooser(seed: int, position: Position, part: int = 0) -> Callable[[int], int]:
    """Return a function that draws uniform numbers from 0 to n - 1, one at each call.

    The sequence is a function of seed, position and `part`, the number of a part of the example.
    """
    raw = Philox(key=[seed, position.epoch], counter=[0, position.item, part, _DRAWS])
    return lambda choices: int(raw.random_raw()) * choices >> 64


def generator(seed: int, position: Position) -> torch.Generator:
    """Return a CPU generator for the other random numbers of an example: noise, timestep, dropout."""
    raw = int(Philox(key=[seed, position.epoch], counter=[position.item, 0, 0, _NOISE]).random_raw())
    return torch.Generator().manual_seed(raw >> 1)  # torch seeds are signed


def stratified(position: Position, drawn: torch.Generator) -> float:
    """Return a random number in [0, 1), uniform in the band of the example's slot.

    The B examples of a global batch have a band of width 1 / B each, so that together they cover [0, 1) evenly. Over
    many batches the number is uniform, since the slot of an item changes with the permutation.
    """
    return (position.slot + float(torch.rand((), generator=drawn))) / position.slots


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` numbers of `range(count)`: the middles of as many equal parts."""
    chosen = min(count, most)
    return [(2 * part + 1) * count // (2 * chosen) for part in range(chosen)]


def part_seed(seed: int, number: int) -> int:
    """Return the seed of a dataset of a mixture: clips of the same number in two of them get different noise."""
    if number == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:6], "big")


class Examples(Protocol):
    """Examples of an epoch; picklable, since the data loader sends them to its worker processes."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: Position) -> Any:
        """Return an example. Its noise, timestep and dropout are functions of the seed and the position alone."""
        ...


class Mixed:
    """Examples of several datasets: an epoch has as many epochs of each as its weight."""

    def __init__(self, parts: Sequence[Examples], weights: Sequence[int]) -> None:
        self._copies = [
            (part, copy, weight) for part, weight in zip(parts, weights, strict=True) for copy in range(weight)
        ]
        self._ends = list(accumulate(len(part) for part, _, _ in self._copies))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, position: Position) -> Any:
        """Return an example of the dataset in whose range the item lies."""
        number = bisect_right(self._ends, position.item)
        part, copy, weight = self._copies[number]
        item = position.item - (self._ends[number] - len(part))
        return part[replace(position, epoch=position.epoch * weight + copy, item=item)]


class Batches(Sampler[list[Position]]):
    """Batches of one process for a range of steps: a `batch_sampler` for torch's DataLoader.

    The DataLoader keeps their order for any number of workers.
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, *, steps: range, process: int = 0, processes: int = 1
    ) -> None:
        """Store the arguments.

        Args:
            count: items per epoch.
            batch_size: items per step, summed over all processes.
            seed: seed of the order; 0 or more.
            steps: steps to iterate over, such as `range(done, total_steps)`.
            process: rank of this process.
            processes: number of processes; a divisor of `batch_size`.

        Raises:
            UserError: there are no items, or `batch_size` is not a multiple of `processes`.
        """
        if count < 1:
            raise UserError("there are no examples to train on: check the split and the window settings")
        if batch_size < 1 or batch_size % processes:
            raise UserError(f"{processes} processes cannot share a batch of {batch_size}; make it a multiple")
        self.count, self.batch_size, self.seed, self.steps = count, batch_size, seed, steps
        self.process, self.share = process, batch_size // processes

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[Position]]:
        first = self.process * self.share
        for step in self.steps:
            yield [self._place(step, slot) for slot in range(first, first + self.share)]

    def _place(self, step: int, slot: int) -> Position:
        epoch, within = divmod(step * self.batch_size + slot, self.count)
        item = int(epoch_order(self.seed, epoch, self.count)[within])
        return Position(epoch, item, slot, self.batch_size, step)


def begin_reading(_number: int) -> None:
    """Set up a process of the data loader; its `worker_init_fn`.

    It ignores SIGTERM and SIGINT, which a scheduler or a terminal sends to all processes of a job, because the training
    process still needs the examples of the step in progress. It shares tensors by name instead of by open files, which
    `ulimit -n` limits. A step of phase b on one GPU has 384 windows of five tensors, and several steps are read ahead.

    It drops the exit calls of services, whose threads are not in this process. Prefect's calls would fail, and the
    failed process would end the training.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    calls = threading._threading_atexits  # type: ignore[attr-defined]  # exit calls of pools are functions, and work here
    calls[:] = [call for call in calls if not isinstance(call.func, MethodType)]
