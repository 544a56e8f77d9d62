"""Adapter training of the baselines GC and GFC: adapters on a frozen transformer, held-out loss by noise level.

GC of size `mini` trains the whole transformer in their place.

Both are phases of the training loop (`training/trainer.py`), built by `gc_phase` and `gfc_phase`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from models.checkpoint_writer import within
from training.baselines.folder import BaselineFolder, save_trained
from training.data.order import Examples, Position
from training.data.spread import spread
from training.data.turns import RecordedTurn
from training.phase import ALONE, Share

NOISE_LEVELS = (99, 299, 499, 699, 899)
"""Timesteps of 1000 at which the loss on held-out clips is measured."""


class NoisedExamples(Protocol):
    """Noised examples of clips."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Position) -> Any:
        """Return a training example; its random numbers are functions of seed and position."""
        ...

    def at_noise_level(self, item: int, timestep: int) -> Any:
        """Return a validation example, always with the same noise."""
        ...


@dataclass(eq=False)
class AdapterPhase(ABC):
    """Training phase of a baseline's adapters."""

    network: nn.Module
    """Network with the transformer as its member `transformer`."""
    examples: Examples
    held_out: NoisedExamples | None
    """Clips of the split `val`, if there are any."""
    clips: int
    """Maximum number of held-out clips in validation."""
    start: BaselineFolder
    """Baseline from which training starts."""
    name: ClassVar[str]
    units: ClassVar[Sequence[str]]

    def size_of(self, _example: Any) -> int:
        """Return 1: all examples are of one size."""
        return 1

    @abstractmethod
    def collate(self, examples: Sequence[Any]) -> Any:
        """Collate examples."""

    def validate(
        self, network: nn.Module, device: torch.device, _looks: Path | None, share: Share = ALONE
    ) -> dict[str, float]:
        """Return the loss at each noise level on held-out clips; empty if there are none."""
        held_out = self.held_out
        if not held_out:
            return {}

        def losses_of(item: int) -> Tensor:
            batch = self.collate([held_out.at_noise_level(item, timestep) for timestep in NOISE_LEVELS])
            losses_B: Tensor = network(batch.to(device))["loss"].float()
            return losses_B

        means = share.values(spread(len(held_out), self.clips), losses_of).cpu().mean(dim=0).tolist()
        by_level = {f"loss_{timestep:03d}": mean for timestep, mean in zip(NOISE_LEVELS, means, strict=True)}
        return {"loss": sum(means) / len(means), **by_level}

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a playable baseline with the adapters in `state`."""
        transformer = self.network.get_submodule("transformer")
        save_trained(folder, self.start, transformer, within(state, "transformer."))


def instructed(turns: Iterable[RecordedTurn]) -> tuple[RecordedTurn, ...]:
    """Return the turns that have an instruction."""
    return tuple(turn for turn in turns if turn.instruction)


def trained_transformer(baseline: BaselineFolder, frozen: torch.dtype, gradient_checkpointing: bool) -> Any:
    """Load the transformer of a baseline for training, its frozen weights in the dtype `frozen`."""
    transformer = baseline.transformer(dtype=frozen)
    if gradient_checkpointing:
        transformer.enable_gradient_checkpointing()
    return transformer
