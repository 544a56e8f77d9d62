"""Protocol of a training phase, as the training loop (`trainer.py`) sees it: network, examples, validation, export.

In validation every process takes a share of the clips, and all get the values of all clips (`Share`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from models.prompt_batch import TensorBatch
from training.data.order import Examples

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """One of several processes that compute values of the same items.

    Every process computes the same number of values, because all processes gather a sharded network together. The last
    item is repeated if necessary.
    """

    process: int = 0
    processes: int = 1
    gather: Callable[[Tensor], Tensor] = lambda rows: rows
    """Collective function from the rows of a process to the rows of all processes, in their order."""

    @classmethod
    def of(cls, accelerator: Accelerator) -> Self:
        """Return the share of this process. Values are moved to its device, because NCCL gathers only from GPUs."""
        device, gather = accelerator.device, accelerator.gather
        return cls(accelerator.process_index, accelerator.num_processes, lambda rows: gather(rows.to(device)))

    def values(self, items: Sequence[T], value_of: Callable[[T], Tensor]) -> Tensor:
        """Return the values of all items, stacked in their order. Collective call.

        Args:
            items: one or more items.
            value_of: returns the value of an item, always of the same shape.
        """
        rounds = -(-len(items) // self.processes)
        own = [items[min(each * self.processes + self.process, len(items) - 1)] for each in range(rounds)]
        rows = self.gather(torch.stack([value_of(item) for item in own]).contiguous())
        by_round = rows.reshape(self.processes, rounds, *rows.shape[1:]).transpose(0, 1)
        return by_round.flatten(0, 1)[: len(items)]


ALONE = Share()


class StepBatch(NamedTuple):
    """Examples of one process and one step."""

    micro_batches: list[TensorBatch]
    examples: int
    units: float
    """Sum of the sizes of the examples."""


@dataclass(frozen=True)
class Collator:
    """Function from examples to micro-batches, which runs in the process that reads the examples.

    A micro-batch has examples of similar size, because it is padded to the longest.
    """

    size_of: Callable[[Any], int]
    collate: Callable[[Sequence[Any]], TensorBatch]
    most: int
    """Maximum number of examples in a micro-batch."""

    def __call__(self, examples: Sequence[Any]) -> StepBatch:
        """Return the micro-batches of a step."""
        ordered = sorted(examples, key=self.size_of)
        parts = [self.collate(ordered[at : at + self.most]) for at in range(0, len(ordered), self.most)]
        return StepBatch(parts, len(ordered), float(sum(map(self.size_of, ordered))))


class Phase(Protocol):
    """A network with its examples, validation and export."""

    @property
    def name(self) -> str:
        """Name of the phase in reports."""
        ...

    @property
    def network(self) -> nn.Module:
        """Network that maps a batch to named terms, each with one value per sample [B].

        The term `loss` is minimized, the others are only reported. A term `loss/KIND` is the loss of the examples of a
        kind and 0 for others; `share/KIND` is 1 and 0, so that the mean loss of the kind is the ratio of the two.
        Parameters that require a gradient are trained, in float32.
        """
        ...

    @property
    def examples(self) -> Examples:
        """Training examples."""
        ...

    @property
    def units(self) -> Sequence[str]:
        """Names of the module classes that FSDP2 wraps as separate sharding units; the innermost are compiled."""
        ...

    @property
    def varied(self) -> bool:
        """Return whether batches differ in size."""
        ...

    def size_of(self, example: Any) -> int:
        """Return the size of an example, such as its length in tokens: a micro-batch gets examples of similar size."""
        ...

    def collate(self, examples: Sequence[Any]) -> TensorBatch:
        """Collate examples into a batch, on the CPU."""
        ...

    def validate(
        self, network: nn.Module, device: torch.device, pictures: Path | None, share: Share = ALONE
    ) -> dict[str, float]:
        """Return metrics on held-out clips, and write pictures into a folder named by the step.

        Collective call: each process computes its share, and all return the same metrics. The network is the one
        prepared by `accelerate`, in evaluation mode. Only the main process gets a folder; the others write nothing.
        """
        ...

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write the result. `state` is the network's full state on the CPU, averaged if `ema_decay` is set."""
        ...
