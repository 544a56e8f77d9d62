"""Engine options: how the networks of a checkpoint are run. Free of torch, so that the command shows its defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """Options of an `Engine`, and of everything that loads one."""

    device: str | None = None
    """`cpu`, `cuda`, `cuda:1`, ...; unset: the first GPU, if there is one."""
    steps: int = 50
    """Denoising steps; a divisor of 1000."""
    guidance: float = 6.0
    """How strongly the shot tokens are followed; 1 is no more than they say, and takes half the time."""
    offload: bool = False
    """For a small GPU: the networks wait in main memory and come to it one at a time; frames are decoded in tiles."""
    compile: bool = False
    """Compile the shot decoder: its first turn takes longer, the others less."""
