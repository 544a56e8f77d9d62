"""Network in training: its weights, their optimizer and moving average, the count of skipped batches.

This is all that a step changes, so a saved state is that of a learner (`state_files.py`). It holds the trained weights
and nothing of the frozen ones; sharded over devices, each of them has its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
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

from training import state_files
from training.average import MovingAverage
from training.config import LoopSettings
from training.optimizer import make_optimizer
from training.skips import Skips

_TRAINED_ONLY = StateDictOptions(ignore_frozen_params=True, strict=False)
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Learner:
    """Network with all that its training changes."""

    def __init__(self, network: nn.Module, units: Sequence[str], loop: LoopSettings, accelerator: Accelerator) -> None:
        """Place the network on the devices.

        Args:
            network: network whose parameters that require a gradient are trained.
            units: classes of modules that FSDP2 shards by themselves.
            loop: settings of the loop.
            accelerator: devices and precision.
        """
        self.accelerator = accelerator
        network.to(accelerator.device)
        _shard_by_units(accelerator, units)
        fused = accelerator.device.type == "cpu"  # where no loss is scaled, since fp16 is refused
        self.network, self.optimizer = accelerator.prepare(network, make_optimizer(network, loop, fused=fused))
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.average = MovingAverage(trained, loop.ema_decay, on_cpu=loop.ema_on_cpu) if loop.ema_decay else None
        self.skips = Skips()

    def clip(self, most: float) -> float:
        """Scale the gradient down to a norm of at most `most`. Return the norm before."""
        norm: Tensor | float | None = self.accelerator.clip_grad_norm_(self.network.parameters(), most)
        if norm is None:
            return 0.0
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)  # a sharded norm is a DTensor

    def update(self, rate: float, *, skipped: bool) -> None:
        """Change the weights by the gradient; a skipped batch changes nothing but the loss scale, if there is one."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if not skipped or self.accelerator.scaler:  # a loss scaler needs the call to update its scale
            self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average and not skipped:
            self.average.step()

    def averaged(self) -> AbstractContextManager[None]:
        """Put the averaged weights, if there are any, in the place of the last ones."""
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
        network, optimizer = get_state_dict(self.network, self.optimizer.optimizer, options=_TRAINED_ONLY)
        state: dict[str, Any] = {"network": network, "optimizer": optimizer, "skips": self.skips.state()}
        if self.average:
            state["average"] = self.average.state()
        if self.accelerator.scaler:
            state["scaler"] = self.accelerator.scaler.state_dict()
        return state

    def restore(self, folder: Path, step: int) -> None:
        """Restore a saved state; settings stay those of the loop, which may differ from those of a forked run's origin.

        Args:
            folder: folder of the states.
            step: number of steps done.
        """
        state, groups = self.state(), [dict(group) for group in self.optimizer.param_groups]
        state_files.load(folder, step, state, optional=("average", "scaler"))
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
    """Have FSDP2 shard each unit by itself, reduce gradients in float32, and leave the outputs of a unit as they are.

    Without a policy on the command line accelerate shards the network as one unit, gathered whole in every step; and it
    reduces, and casts the loss, in the precision of autocast. The networks compute their loss in float32 themselves;
    what one unit gives to another has to stay in the precision of both.
    """
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is None:
        return
    plugin.auto_wrap_policy, plugin.transformer_cls_names_to_wrap = transformer_auto_wrap_policy, list(units)
    if plugin.mixed_precision_policy is not None:
        plugin.mixed_precision_policy = replace(
            plugin.mixed_precision_policy, reduce_dtype=torch.float32, output_dtype=None
        )
