"""Protocols between a training phase and the training loop (`trainer.py`): network, examples, validation, export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from training.data.order import Examples
from training.share import ALONE, Share


class Batch(Protocol):
    """Collated examples."""

    def to(self, device: torch.device) -> Self:
        """Return the batch with its tensors on a device."""
        ...


class Phase(Protocol):
    """A network with its examples, validation and export."""

    @property
    def name(self) -> str:
        """Name of the phase in reports."""
        ...

    @property
    def network(self) -> nn.Module:
        """Network that maps a batch to named terms, each with one value per sample [B].

        The term `loss` is minimized, the others are only reported. Parameters that require a gradient are trained, in
        float32.
        """
        ...

    @property
    def examples(self) -> Examples:
        """Training examples."""
        ...

    @property
    def units(self) -> Sequence[str]:
        """Names of the module classes that FSDP2 wraps as separate sharding units."""
        ...

    def size_of(self, example: Any) -> int:
        """Return the size of an example, such as its length in tokens: a micro-batch gets examples of similar size."""
        ...

    def collate(self, examples: Sequence[Any]) -> Batch:
        """Collate examples into a batch."""
        ...

    def validate(
        self, network: nn.Module, device: torch.device, looks: Path | None, share: Share = ALONE
    ) -> dict[str, float]:
        """Return metrics on held-out clips, and write pictures into a folder named by the step.

        Collective call: each process computes its share, and all return the same metrics. The network is the one
        prepared by `accelerate`, in evaluation mode. Only the main process gets a folder; the others write nothing.
        """
        ...

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write the result. `state` is the network's full state on the CPU, averaged if `ema_decay` is set."""
        ...
