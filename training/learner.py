"""Network in training with all that a step changes: weights, optimizer, moving average, count of skipped batches.

A saved state (`training/states.py`) has exactly this, for a bit-exact resume after a kill. Frozen bases are not saved.
Order, noise and dropout are functions of seed and step, so they need no state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.tensor import DTensor

from pipeline.core.errors import UserError
from training.compiling import compile_blocks, compiles
from training.config import LoopSettings
from training.optimizer import MovingAverage, make_optimizer
from training.states import load_state

MOST_IN_A_ROW = 10
"""Number of skipped batches in a row that ends a run: one is chance, but after ten the network has overflowed."""
_TRAINED_ONLY = StateDictOptions(ignore_frozen_params=True, strict=False)
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Learner:
    """Network with all that its training changes."""

    def __init__(
        self,
        network: nn.Module,
        units: Sequence[str],
        loop: LoopSettings,
        accelerator: Accelerator,
        *,
        varied: bool = False,
    ) -> None:
        """Place the network on the devices.

        Args:
            network: network whose parameters that require a gradient are trained.
            units: classes of modules that FSDP2 shards by themselves, and of which the innermost are compiled.
            varied: whether batches differ in size.
        """
        self.accelerator, self.compiled = accelerator, compiles(loop, accelerator.device)
        network.to(accelerator.device)
        if self.compiled:  # before sharding, which changes the classes
            compile_blocks(network, units, varied=varied)
        _shard_by_units(accelerator, units)
        fused = accelerator.scaler is None
        self.network, self.optimizer = accelerator.prepare(network, make_optimizer(network, loop, fused=fused))
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.average = MovingAverage(trained, loop.ema_decay, on_cpu=loop.ema_on_cpu) if loop.ema_decay else None
        self.skips = Skips()

    def clip(self, most: float) -> float:
        """Scale the gradient, or that of each part, down to a norm of at most `most`. Return the norm before."""
        parts: dict[str, list[Tensor]] = {}
        for group in self.optimizer.param_groups:
            parts.setdefault(group.get("part", ""), []).extend(group["params"])
        if len(parts) > 1:
            self.accelerator.unscale_gradients()
            return math.hypot(*(float(nn.utils.clip_grad_norm_(each, most)) for each in parts.values()))
        norm: Tensor | float | None = self.accelerator.clip_grad_norm_(self.network.parameters(), most)
        if norm is None:
            return 0.0
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)  # a sharded norm is a DTensor

    def update(self, rate: float, *, skipped: bool, step: int = 0) -> None:
        """Change the weights by the gradient; a skipped batch changes only the loss scale, if there is one.

        Args:
            step: number of the step, from 0; a part with another pace may rest in it.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("rate", 1.0)
            if step % group.get("every", 1):
                for parameter in group["params"]:
                    parameter.grad = None  # with a gradient of 0, AdamW would still move by its averages
        if not skipped or self.accelerator.scaler:  # a loss scaler needs the call to update its scale
            self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average and not skipped:
            self.average.step()

    def drop_gradients(self) -> None:
        """Forget the gradients of a pass that is no step."""
        self.optimizer.zero_grad()

    def uncompiled(self) -> AbstractContextManager[object]:
        """Run compiled blocks as they were written during the block: in other sizes, or to count their operations."""
        return torch.compiler.set_stance("force_eager") if self.compiled else nullcontext()

    def averaged(self) -> AbstractContextManager[None]:
        """Replace the last weights by the averaged ones during the block, if there are any."""
        return self.average.in_place() if self.average else nullcontext()

    def scale(self) -> float:
        """Return the factor of the loss; 1 without a loss scaler."""
        scaler = self.accelerator.scaler
        return float(scaler.get_scale()) if scaler else 1.0

    def weights(self) -> dict[str, Tensor]:
        """Return all weights in the main process's memory; on a CPU they alias the network's. Collective call."""
        return cast(dict[str, Tensor], get_model_state_dict(self.network, options=_WHOLE))

    def state(self) -> dict[str, Any]:
        """Return the state to be saved."""
        self._make_moments()
        network, optimizer = get_state_dict(self.network, self.optimizer.optimizer, options=_TRAINED_ONLY)
        state: dict[str, Any] = {"network": network, "optimizer": optimizer, "skips": self.skips.state()}
        if self.average:
            state["average"] = self.average.state()
        if self.accelerator.scaler:
            state["scaler"] = self.accelerator.scaler.state_dict()
        return state

    def _make_moments(self) -> None:
        """Give parameters that have not moved yet their moments, all 0, so that every state has the same parts."""
        optimizer = self.optimizer.optimizer
        new = [each for group in optimizer.param_groups for each in group["params"] if each not in optimizer.state]
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups if new else ():
            group["lr"] = 0.0
        for parameter in new:
            parameter.grad = torch.zeros_like(parameter)
        if new:
            optimizer.step()
            optimizer.zero_grad()
        for parameter in new:
            optimizer.state[parameter]["step"].zero_()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def restore(self, folder: Path, step: int) -> None:
        """Restore a saved state, but keep the loop's own settings, which a fork may have changed."""
        state, groups = self.state(), [dict(group) for group in self.optimizer.param_groups]
        load_state(folder, step, state, optional=("average", "scaler"))
        set_state_dict(
            self.network,
            self.optimizer.optimizer,
            model_state_dict=state["network"],
            optim_state_dict=state["optimizer"],
            options=_TRAINED_ONLY,
        )
        for group, own in zip(self.optimizer.param_groups, groups, strict=True):
            group.update({name: value for name, value in own.items() if name != "params"})
        self.skips = Skips(**state["skips"])
        if self.average:  # without a saved one it begins at the saved weights
            self.average.load(state.get("average"), step - self.skips.total)
        if self.accelerator.scaler and "scaler" in state:
            self.accelerator.scaler.load_state_dict(state["scaler"])


def _shard_by_units(accelerator: Accelerator, units: Sequence[str]) -> None:
    """Have FSDP2 shard each unit by itself, reduce gradients in float32, and not cast the outputs of a unit.

    Without a policy on the command line, accelerate shards the network as one unit and gathers all of it in every step.
    It also reduces gradients and casts the loss in the precision of autocast. Our networks compute their loss in
    float32, and tensors between units must keep their precision.
    """
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is None:
        return
    plugin.auto_wrap_policy, plugin.transformer_cls_names_to_wrap = transformer_auto_wrap_policy, list(units)
    if plugin.mixed_precision_policy is not None:
        plugin.mixed_precision_policy = replace(
            plugin.mixed_precision_policy, reduce_dtype=torch.float32, output_dtype=None
        )


@dataclass
class Skips:
    """Counts of skipped batches. All processes hold the same, since they see the same reduced values."""

    total: int = 0
    in_a_row: int = 0

    def count(self, phase: str, step: int, loss: float, norm: float, *, scale: float = 1.0) -> bool:
        """Count a batch. Return whether its step is to be skipped.

        Args:
            step: number of the step, from 1.
            scale: factor of the loss, by a loss scaler.

        Raises:
            UserError: `MOST_IN_A_ROW` batches in a row were not finite.
        """
        if math.isfinite(loss) and (math.isfinite(norm) or scale > 1):
            self.in_a_row = 0
            return False
        self.total += 1
        self.in_a_row += 1
        if self.in_a_row >= MOST_IN_A_ROW:
            raise UserError(
                f"{phase}: {self.in_a_row} batches in a row were not finite, the last at step {step} (loss {loss}, "
                f"gradient norm {norm}). Use a smaller learning_rate or another precision: 'no', or on a GPU fp16 "
                "instead of bf16, in which CogVideoX 2B overflows. Either continue in a new folder from the last state "
                "(--fork-from), or start again"
            )
        return True

    def state(self) -> dict[str, int]:
        """Return the counts for a saved state."""
        return {"total": self.total, "in_a_row": self.in_a_row}
