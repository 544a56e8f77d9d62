"""Timesteps of the diffusion, and the counts of denoising steps that divide them. Imports no torch."""

from __future__ import annotations

from pipeline.core.errors import UserError

TIMESTEPS = 1000
STEP_COUNTS = tuple(steps for steps in range(1, TIMESTEPS + 1) if TIMESTEPS % steps == 0)
"""Step counts that end in a clean sample: the scheduler's stride 1000 / steps must be an integer."""


def check_steps(steps: int) -> None:
    """Raise UserError for a step count that does not divide 1000: such a run leaves noise in the sample."""
    if steps not in STEP_COUNTS:
        raise UserError(f"steps must divide {TIMESTEPS}: one of {', '.join(map(str, STEP_COUNTS))}; not {steps}")
