"""Share of a process in validation: items are spread over the processes, and every process gets the values of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import torch
from accelerate import Accelerator
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """One of several processes that compute values of the same items.

    Every process computes equally many, since a sharded network is gathered by all processes at once: the last item
    is repeated where they do not divide.
    """

    process: int = 0
    processes: int = 1
    gather: Callable[[Tensor], Tensor] = lambda rows: rows
    """Collective function from the rows of a process to those of all, in the order of the processes."""

    @classmethod
    def of(cls, accelerator: Accelerator) -> Self:
        """Return the share of this process; values may lie on any device, while NCCL gathers from GPUs alone."""
        device, gather = accelerator.device, accelerator.gather
        return cls(accelerator.process_index, accelerator.num_processes, lambda rows: gather(rows.to(device)))

    def values(self, items: Sequence[T], value_of: Callable[[T], Tensor]) -> Tensor:
        """Return the values of all items, stacked in their order. Collective call.

        Args:
            items: at least one.
            value_of: value of an item; all of one shape.
        """
        rounds = -(-len(items) // self.processes)
        own = [items[min(each * self.processes + self.process, len(items) - 1)] for each in range(rounds)]
        rows = self.gather(torch.stack([value_of(item) for item in own]).contiguous())
        by_round = rows.reshape(self.processes, rounds, *rows.shape[1:]).transpose(0, 1)
        return by_round.flatten(0, 1)[: len(items)]


ALONE = Share()
