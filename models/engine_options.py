"""Options of the inference engine, its denoising steps, and the callback for its progress.

Imports no torch, so that `--help` shows the defaults quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.core.errors import UserError

TIMESTEPS = 1000
STEP_COUNTS = tuple(steps for steps in range(1, TIMESTEPS + 1) if TIMESTEPS % steps == 0)
"""Step counts that end in a clean sample: the scheduler's stride 1000 / steps must be an integer."""
PartProgress = Callable[[str, float, float], None]
"""Progress callback with a part's name, its finished steps or clips, and their total. It may raise to end the work."""


@dataclass(frozen=True)
class EngineOptions:
    """Options of an `Engine` and of all code that loads one."""

    device: str | None = None
    """Device, such as `cpu`, `cuda` or `cuda:1`. None means the first GPU if there is one, otherwise the CPU."""
    steps: int = 50
    """Number of denoising steps; must divide 1000."""
    guidance: float = 6.0
    """Guidance scale: weight of the shot tokens in the velocity. 1 turns guidance off and halves the denoising time."""
    offload: bool = False
    """For a small GPU: keep networks in main memory, copy one at a time to the GPU, and decode frames in tiles."""
    compile: bool = False
    """Compile the shot decoder: the first turn takes longer, later turns less."""


SHIPPED_STEPS, SHIPPED_GUIDANCE = 10, 2.0
"""Denoising steps and guidance for the checkpoint of the package: a turn is then drawn in a second or two on a CPU."""


def check_steps(steps: int) -> None:
    """Raise UserError for a step count that does not divide 1000: such a run leaves noise in the sample."""
    if steps not in STEP_COUNTS:
        counts = ", ".join(map(str, STEP_COUNTS))
        raise UserError(f"steps must divide {TIMESTEPS}, unlike {steps}: choose one of {counts}")


def unwatched(part: str, done: float, total: float) -> None:
    """Ignore progress: the default callback."""
