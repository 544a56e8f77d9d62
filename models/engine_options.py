"""Options of the inference engine, its denoising steps, and the callback for its progress.

Imports no torch, so that `--help` shows the defaults quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from models.config import ModelConfig, Sampling

TIMESTEPS = 1000
STEP_COUNTS = tuple(steps for steps in range(1, TIMESTEPS + 1) if TIMESTEPS % steps == 0)
"""Step counts that end in a clean sample: the scheduler's stride 1000 / steps must be an integer."""
Sampler = Literal["sde", "ode"]
"""Solver of the denoising, see `models.diffusion.sample`."""
PartProgress = Callable[[str, float, float], None]
"""Progress callback with a part's name, its finished steps or clips, and their total. It may raise to end the work."""


@dataclass(frozen=True)
class EngineOptions:
    """Options of an `Engine` and of all code that loads one."""

    device: str | None = None
    """Device, such as `cpu`, `cuda` or `cuda:1`. None means the first GPU if there is one, otherwise the CPU."""
    steps: int | None = None
    """Number of denoising steps, a divisor of 1000. None here and below: the checkpoint's own (`config.Sampling`)."""
    guidance: float | None = None
    """Guidance scale: weight of the shot tokens in the velocity. 1 turns guidance off and halves the denoising time."""
    offload: bool = False
    """For a small GPU: keep networks in main memory, copy one at a time to the GPU, and decode frames in tiles."""
    compile: bool = False
    """Compile the shot decoder: the first turn takes longer, later turns less."""
    sampler: Sampler | None = None

    def sampling_of(self, config: ModelConfig) -> Sampling:
        """Return a checkpoint's sampling with what these options ask for. UserError if a value is out of range."""
        return config.sampling.replaced(sampler=self.sampler, steps=self.steps, guidance=self.guidance)


def check_steps(steps: int) -> None:
    """Raise UserError for a step count that does not divide 1000: such a run leaves noise in the sample."""
    if steps not in STEP_COUNTS:
        counts = ", ".join(map(str, STEP_COUNTS))
        raise UserError(f"steps must divide {TIMESTEPS}, unlike {steps}: choose one of {counts}")


def unwatched(part: str, done: float, total: float) -> None:
    """Ignore progress: the default callback."""
