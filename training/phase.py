"""What a phase of training is to the loop that runs it (`trainer.py`): a network, its examples, what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from training.data.order import Position


class Batch(Protocol):
    """Some examples put together."""

    def to(self, device: torch.device) -> Self:
        """The batch with its tensors on a device."""
        ...


class Examples(Protocol):
    """What an epoch consists of. It travels to the loader's worker processes, so it can be pickled."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Position) -> Any:
        """An example. Everything random about it (noise, timestep, dropout) is drawn from its place alone."""
        ...


class Phase(Protocol):
    """What is trained on what."""

    @property
    def name(self) -> str:
        """What it is called in reports."""
        ...

    @property
    def network(self) -> nn.Module:
        """Takes a batch and gives one number a sample [B] for each term; `loss` is minimised, the others are shown.

        Trained are the parameters that require a gradient; they are float32.
        """
        ...

    @property
    def examples(self) -> Examples:
        """What it is trained on."""
        ...

    @property
    def units(self) -> Sequence[str]:
        """Names of the classes that FSDP2 shards one by one."""
        ...

    def collate(self, examples: Sequence[Any]) -> Batch:
        """Put examples together."""
        ...

    def validate(self, network: nn.Module, device: torch.device, looks: Path | None) -> dict[str, float]:
        """Figures on held-out clips, and pictures in a folder named by the step.

        Called by all processes together, with what `accelerate` made of the network, in evaluation mode; all but the
        main process get no folder, and write nothing.
        """
        ...

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write the result. `state` is the network's whole state on the CPU, averaged where that was asked for."""
        ...
