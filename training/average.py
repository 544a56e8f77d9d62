"""Moving average of the trained weights, validated and exported in their place.

    m_n = d_n m_{n-1} + (1 - d_n) theta_n,    d_1 = 0,    d_n = min(d, n / (n + 9))

with theta_n the weights after step n and d the decay. The average covers about the last tenth of the steps until it
covers the last 1 / (1 - d). It takes 4 bytes of memory for each trained number, on the device of the weights, or in
main memory: then every step copies the weights there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """Average of parameters; sharded parameters have sharded averages."""

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float, *, on_cpu: bool = False) -> None:
        """Start from copies of the parameters.

        Args:
            parameters: the trained parameters.
            decay: d.
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
        """Return the averages by their place; a state to load fills these tensors."""
        return {str(place): mean for place, mean in enumerate(self.means)}

    def load(self, state: Mapping[str, Tensor] | None, steps: int) -> None:
        """Go on from averages over a number of steps; None: as if the parameters had always had their values."""
        if state is None:
            self._follow(0.0)
        else:
            self.means = list(state.values())
        self.steps = steps

    @torch.no_grad()
    def _follow(self, decay: float) -> None:
        for mean, parameter in zip(self.means, self.parameters, strict=True):
            mean.lerp_(parameter.detach().to(mean.device), 1 - decay)

    @torch.no_grad()
    def _set(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value.to(parameter.device))
