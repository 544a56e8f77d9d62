"""Muon: orthogonal steps for matrices, AdamW's for all else, as one optimizer.

With G the gradient of a matrix, beta the momentum, eta the learning rate and lambda the weight decay, a step is

    M <- beta M + (1 - beta) G                  U S V^T = M
    W <- (1 - eta lambda) W - eta .2 sqrt(max(rows, columns)) U V^T

so that no direction learns faster than another (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/). By the
factor its root mean square is AdamW's, and one learning rate serves both (Liu et al. 2025,
https://arxiv.org/abs/2502.16982). A convolution counts as a matrix [outputs, rest].

torch's own Muon and timm's approximate U V^T in bf16; here it is in float32 where bf16 is slow (`precision.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from timm.optim.muon import zeropower_via_newtonschulz
from torch import Tensor, nn

from training.precision import has_bf16

MOMENTUM = 0.95
LEAST_SIDE, MOST_ASPECT = 4, 128
"""Least rows or columns of a matrix that takes Muon's step, and largest ratio of them; AdamW trains thinner ones."""
_COEFFICIENTS = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]
"""Of five Newton-Schulz iterations (https://leloykun.github.io/ponder/muon-opt-coeffs/)."""


class Muon(torch.optim.AdamW):
    """Optimizer of parameter groups, each with the key `orthogonal`: true if its matrices take Muon's step."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step. Gradients of the matrices with Muon's step are gone afterwards: AdamW must not see them."""
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
    """Return whether Muon's step suits a parameter: it has several directions, and is not all but a vector."""
    if parameter.ndim < 2 or min(parameter.shape[:2]) == 1:
        return False
    short, long = sorted((len(parameter), parameter.numel() // len(parameter)))
    return short >= LEAST_SIDE and long <= MOST_ASPECT * short


def orthogonal(matrix_MN: Tensor) -> Tensor:
    """Return about U V^T of a matrix U S V^T: singular values become about 1, only very small ones stay smaller."""
    dtype = torch.bfloat16 if has_bf16(matrix_MN.device) else torch.float32
    near_MN: Tensor = zeropower_via_newtonschulz(matrix_MN, len(_COEFFICIENTS), _COEFFICIENTS, dtype=dtype)
    return near_MN.to(matrix_MN.dtype)
