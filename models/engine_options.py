"""Engine options: device and speed settings. Imports no torch, so that `--help` can show the defaults quickly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """Options of an `Engine` and of all code that loads one."""

    device: str | None = None
    """Device: `cpu`, `cuda`, `cuda:1`, ...; None: the first GPU if there is one, else the CPU."""
    steps: int = 50
    """Number of denoising steps; must divide 1000."""
    guidance: float = 6.0
    """Guidance scale: weight of the shot tokens in the velocity. 1 turns guidance off and halves the denoising time."""
    offload: bool = False
    """CPU offload for a small GPU: networks stay in main memory and are copied to the GPU one at a time; frames are
decoded in tiles."""
    compile: bool = False
    """Compile the shot decoder: the first turn takes longer, later turns less."""


SHIPPED_STEPS, SHIPPED_GUIDANCE = 10, 2.0
"""Denoising steps and guidance for the checkpoint of the package: a turn is then drawn in a second or two on a CPU."""
