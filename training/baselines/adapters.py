"""What the two trained baselines have in common: adapters on a frozen transformer, held-out loss by noise level.

Both are phases of the one training loop (`training/trainer.py`); `gc_phase` and `gfc_phase` make them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from models.checkpoint import within
from training.baselines.folder import BaselineFolder, save_trained
from training.data.feature_cache import FeatureCache
from training.data.order import Position
from training.data.turns import RecordedTurn

NOISE_LEVELS = (99, 299, 499, 699, 899)
"""Timesteps of 1000 at which held-out clips are looked at."""


class NoisedExamples(Protocol):
    """Clips as examples."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Position) -> Any:
        """An example of training; everything random about it is drawn from its place."""
        ...

    def at_noise_level(self, item: int, timestep: int) -> Any:
        """An example of validation, always with the same noise."""
        ...


@dataclass(eq=False)
class AdapterPhase(ABC):
    """Training of a baseline's adapters."""

    network: nn.Module
    """With the transformer as its member `transformer`."""
    examples: NoisedExamples
    held_out: NoisedExamples | None
    """Of the split `val`."""
    clips: int
    """How many of them are looked at, the first ones."""
    start: BaselineFolder
    """Where the run started."""
    name: ClassVar[str]
    units: ClassVar[Sequence[str]]

    @abstractmethod
    def collate(self, examples: Sequence[Any]) -> Any:
        """Put examples together."""

    def validate(self, network: nn.Module, device: torch.device, _looks: Path | None) -> dict[str, float]:
        """Loss at each noise level on held-out clips; nothing where there are none."""
        if not self.held_out:
            return {}
        rows = []
        for item in range(min(self.clips, len(self.held_out))):
            batch = self.collate([self.held_out.at_noise_level(item, timestep) for timestep in NOISE_LEVELS])
            rows.append(network(batch.to(device))["loss"].float().cpu())
        means = torch.stack(rows).mean(dim=0).tolist()
        by_level = {f"loss_{timestep:03d}": mean for timestep, mean in zip(NOISE_LEVELS, means, strict=True)}
        return {"loss": sum(means) / len(means), **by_level}

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a baseline that plays with the adapters in `state`."""
        transformer = self.network.get_submodule("transformer")
        save_trained(folder, self.start, transformer, within(state, "transformer."))


def spoken(cache: FeatureCache) -> tuple[RecordedTurn, ...]:
    """The turns that have an instruction to be drawn from."""
    return tuple(turn for turn in cache.catalog.turns if turn.instruction)


def trained_transformer(baseline: BaselineFolder, frozen: torch.dtype, gradient_checkpointing: bool) -> Any:
    """The transformer of a baseline, ready for training; its frozen part in the given precision."""
    transformer = baseline.transformer(dtype=frozen)
    if gradient_checkpointing:
        transformer.enable_gradient_checkpointing()
    return transformer
