"""Optimizer of the training loop: AdamW or Muon, parameter groups, learning-rate schedule.

Weight decay pulls a weight towards zero. It acts on the matrices that training starts anew: adapters, shot encoder,
resamplers, embedding of the motion scope. It leaves out

- biases and norms, as usual for transformers;
- the adaLN of the shot decoder (`norm1.linear` and `norm2.linear` of a block), which are pretrained and trained in
  full: decay would pull them away from the base, by several percent over a long run, and not towards it;
- both embeddings of the language model, pretrained likewise.

Muon (`muon.py`) acts on the decayed matrices that are not too thin for it; AdamW trains all else.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from training.config import LoopSettings
from training.muon import Muon

_NOT_DECAYED = ("norm", "embed_tokens", "lm_head")
"""Parts of the names of matrices without weight decay."""


def make_optimizer(network: nn.Module, loop: LoopSettings, *, fused: bool = False) -> torch.optim.Optimizer:
    """Return the optimizer over the parameters of a network that require a gradient.

    Args:
        network: network to be trained.
        loop: settings of the loop.
        fused: update a tensor of AdamW's in one pass over it, a quarter of the time on a CPU. Not with a loss scaler:
            it would leave it to the optimizer to skip a step that is not finite, and Muon's own part would not.
    """
    groups = parameter_groups(network, loop)
    settings: dict[str, Any] = {
        "lr": loop.learning_rate,
        "betas": loop.betas,
        "eps": loop.epsilon,
        "fused": fused or None,
    }
    return Muon(groups, **settings) if loop.optimizer == "muon" else torch.optim.AdamW(groups, **settings)


def parameter_groups(network: nn.Module, loop: LoopSettings) -> list[dict[str, Any]]:
    """Return the trained parameters in at most two groups: the decayed matrices, and the rest."""
    trained = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    groups = []
    for decayed in (True, False):
        parameters = [parameter for name, parameter in trained if is_decayed(name, parameter) == decayed]
        group: dict[str, Any] = {"params": parameters, "weight_decay": loop.weight_decay if decayed else 0.0}
        if loop.optimizer == "muon":
            group["orthogonal"] = decayed
        if parameters:
            groups.append(group)
    return groups


def is_decayed(name: str, parameter: nn.Parameter) -> bool:
    """Return whether weight decay acts on a parameter of this name."""
    return parameter.ndim > 1 and not any(part in name for part in _NOT_DECAYED)


def learning_rate(loop: LoopSettings, step: int) -> float:
    """Learning rate eta(s) of step s, counted from 0: linear warm-up, then half a cosine down to a floor, or constant.

        eta(s) = eta_max (s + 1) / (W + 1)                                     s < W
        eta(s) = eta_max (f + (1 - f) (1 + cos(pi (s - W) / (S - W))) / 2)     s >= W, schedule "cosine"
        eta(s) = eta_max                                                       s >= W, schedule "constant"

    with eta_max = `learning_rate`, f = `minimum_rate`, W = `rate_warm_up` and S = `steps`.
    """
    if step < loop.rate_warm_up:
        return loop.learning_rate * (step + 1) / (loop.rate_warm_up + 1)
    if loop.schedule == "constant":
        return loop.learning_rate
    share = (step - loop.rate_warm_up) / max(1, loop.steps - loop.rate_warm_up)
    fallen = (1 + math.cos(math.pi * share)) / 2
    return loop.learning_rate * (loop.minimum_rate + (1 - loop.minimum_rate) * fallen)
