"""Optimizer of the training loop: AdamW or Muon, parameter groups, learning-rate schedule, moving average.

Weight decay pulls a weight towards zero. It acts on the matrices that are trained from scratch: adapters, shot encoder,
resamplers, embedding of the motion scope. It leaves out

- biases and norms, as usual for transformers;
- the adaLN of the shot decoder (`norm1.linear` and `norm2.linear` of a block), which is pretrained and trained in
  full: decay would pull it away from the base by several percent in a long run;
- both embeddings of the language model, which are pretrained too.

Muon trains the decayed matrices that are not too thin, and AdamW trains the rest.

The parts of a `Paced` network learn at different paces with one optimizer. Each part has groups of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from training.config import LoopSettings
from training.processes import has_bf16

MOMENTUM = 0.95
LEAST_SIDE, MOST_ASPECT = 4, 128
"""Minimum number of rows and of columns, and maximum ratio of the two, of a matrix that Muon trains."""
_COEFFICIENTS = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]
"""Coefficients of five Newton-Schulz iterations (https://leloykun.github.io/ponder/muon-opt-coeffs/)."""
_NOT_DECAYED = ("norm", "embed_tokens", "lm_head")
"""Parts of the names of matrices without weight decay."""


class Pace(NamedTuple):
    """Pace at which a part of a network learns."""

    rate: float = 1.0
    """Factor of the learning rate."""
    every: int = 1
    """The part is updated in step 0 and then in each so many-th step; its gradient of other steps is dropped."""


class Paced(nn.Module):
    """Network whose trained parts learn at paces of their own, and have their gradients clipped apart."""

    paces: Mapping[str, Pace]
    """Pace of each child module with trained parameters, by its name."""


def make_optimizer(network: nn.Module, loop: LoopSettings, *, fused: bool = False) -> torch.optim.Optimizer:
    """Return the optimizer over the parameters of a network that require a gradient.

    Args:
        fused: let AdamW update a tensor in one pass over it, in a quarter of the time on a CPU. Not with a loss scaler,
            which leaves it to a fused optimizer to skip steps that are not finite: Muon's part would not skip them.
    """
    groups = parameter_groups(network, loop)
    settings: dict[str, Any] = {"lr": loop.learning_rate, "betas": loop.betas, "eps": loop.epsilon}
    settings["fused"] = fused or None
    return Muon(groups, **settings) if loop.optimizer == "muon" else torch.optim.AdamW(groups, **settings)


def parameter_groups(network: nn.Module, loop: LoopSettings) -> list[dict[str, Any]]:
    """Return the trained parameters in at most two groups: the decayed matrices, and the rest; so for each part."""
    if not isinstance(network, Paced):
        return _groups(network, "", loop)
    return [
        {**group, "part": part, **pace._asdict()}
        for part, pace in network.paces.items()
        for group in _groups(network.get_submodule(part), f"{part}.", loop)
    ]


def _groups(network: nn.Module, prefix: str, loop: LoopSettings) -> list[dict[str, Any]]:
    trained = [(prefix + name, each) for name, each in network.named_parameters() if each.requires_grad]
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


class Muon(torch.optim.AdamW):
    """Optimizer of parameter groups, each with the key `orthogonal`: true if its matrices take Muon's step."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step. It removes the gradients of Muon's matrices, so that AdamW does not see them."""
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            for parameter in filter(is_matrix, group["params"]) if group["orthogonal"] else ():
                if parameter.grad is not None:
                    self._move(parameter, group["lr"], group["weight_decay"])
                    parameter.grad = None
        super().step()
        return loss

    def _move(self, parameter: nn.Parameter, rate: float, weight_decay: float) -> None:
        state = self.state[parameter]
        if not state:
            state.update(step=torch.tensor(0.0), momentum_buffer=torch.zeros_like(parameter))  # AdamW wants a step
        state["step"] += 1
        momentum = state["momentum_buffer"].lerp_(parameter.grad, 1 - MOMENTUM)
        moved = orthogonal(momentum.flatten(1))
        parameter.mul_(1 - rate * weight_decay)
        parameter.sub_(moved.view_as(parameter), alpha=rate * 0.2 * max(moved.shape) ** 0.5)


def is_matrix(parameter: Tensor) -> bool:
    """Return whether a parameter is a matrix with enough rows and columns for Muon."""
    if parameter.ndim < 2 or min(parameter.shape[:2]) == 1:
        return False
    short, long = sorted((len(parameter), parameter.numel() // len(parameter)))
    return short >= LEAST_SIDE and long <= MOST_ASPECT * short


def orthogonal(matrix_MN: Tensor) -> Tensor:
    """Return about U V^T of a matrix U S V^T: all singular values become about 1, except very small ones."""
    from timm.optim.muon import zeropower_via_newtonschulz  # its package takes a second to import, for Muon alone

    dtype = torch.bfloat16 if has_bf16(matrix_MN.device) else torch.float32
    near_MN: Tensor = zeropower_via_newtonschulz(matrix_MN, len(_COEFFICIENTS), _COEFFICIENTS, dtype=dtype)
    return near_MN.to(matrix_MN.dtype)


class MovingAverage:
    """Average of parameters; sharded parameters have sharded averages."""

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float, *, on_cpu: bool = False) -> None:
        """Start from copies of the parameters.

        Args:
            on_cpu: keep the average in main memory.
        """
        self.parameters, self.decay, self.steps = parameters, decay, 0
        self.means = [
            parameter.detach().to("cpu" if on_cpu else parameter.device, copy=True) for parameter in parameters
        ]

    def step(self) -> None:
        """Add the parameters after a further step."""
        self.steps += 1
        self._follow(min(self.decay, self.steps / (self.steps + 9)) if self.steps > 1 else 0.0)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average into the parameters, and the parameters back afterwards."""
        weights = [parameter.detach().to("cpu", copy=True) for parameter in self.parameters]
        self._set(self.means)
        try:
            yield
        finally:
            self._set(weights)

    def state(self) -> dict[str, Tensor]:
        """Return the averages by their number; a state to load fills these tensors."""
        return {str(number): mean for number, mean in enumerate(self.means)}

    def load(self, state: Mapping[str, Tensor] | None, steps: int) -> None:
        """Continue from averages over a number of steps; without averages, start from the present parameters."""
        if state is None:
            self._follow(0.0)
        else:
            self.means = list(state.values())
        self.steps = steps

    @torch.no_grad()
    def _follow(self, decay: float) -> None:
        now = [each.detach().to(mean.device) for mean, each in zip(self.means, self.parameters, strict=True)]
        torch._foreach_lerp_(self.means, now, 1 - decay)

    @torch.no_grad()
    def _set(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value.to(parameter.device))
