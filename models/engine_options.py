"""Options of the inference engine, its denoising steps, and the callback for its progress.

Imports no torch, so that `--help` shows the defaults quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from models.config import ModelConfig, Sampling

TIMESTEPS = 1000
STEP_COUNTS = tuple(steps for steps in range(1, TIMESTEPS + 1) if TIMESTEPS % steps == 0)
"""Step counts that end in a clean sample: the scheduler's stride 1000 / steps must be an integer."""
Sampler = Literal["sde", "ode", "renoise"]
"""Solver of the denoising, see `models.diffusion.sample`."""
FEW_STEPS = 4
"""Most steps that a checkpoint draws well only if it was distilled."""
Precision = Literal["float32", "half", "int8"]
"""Floating-point formats of the networks, see `models.acceleration.formats_of`."""
Speed = Literal["best", "balanced", "fast"]
FrameDecoder = Literal["full", "tiny"]
"""Network that decodes latents to frames: the autoencoder, or the small one of `models.tiny_frames`."""
PartProgress = Callable[[str, float, float], None]
"""Progress callback with a part's name, its finished steps or clips, and their total. It may raise to end the work."""


@dataclass(frozen=True)
class Preset:
    """Meaning of a speed; by default, of options that name none."""

    most_steps: int = TIMESTEPS
    """A checkpoint with more steps takes these, of the sampler `ode`."""
    guided: tuple[int, int] = (0, TIMESTEPS - 1)
    """First and last timestep with guidance, if the steps are reduced."""
    is_exact: bool = False
    """Compute in float32 on a CPU, whatever its instructions."""
    is_compiled: bool = False
    """Compile the networks on a GPU."""

    def sampling_of(self, own: Sampling) -> Sampling:
        """Return a checkpoint's sampling at this speed."""
        if own.steps <= self.most_steps:
            return own
        return own.replaced(sampler="ode", steps=self.most_steps, guided=self.guided)


SPEEDS: Mapping[Speed, Preset] = {
    "best": Preset(is_exact=True),
    "balanced": Preset(most_steps=10, is_compiled=True),
    "fast": Preset(most_steps=5, guided=(200, 800), is_compiled=True),
}


@dataclass(frozen=True)
class EngineOptions:
    """Options of an `Engine` and of all code that loads one. Explicit ones win over `speed`."""

    device: str | None = None
    """Device, such as `cpu`, `cuda` or `cuda:1`. None means the first GPU if there is one, otherwise the CPU."""
    steps: int | None = None
    """Number of denoising steps, a divisor of 1000. None here and below: the checkpoint's own (`config.Sampling`)."""
    guidance: float | None = None
    """Guidance scale: weight of the shot tokens in the velocity. 1 turns guidance off and halves the denoising time."""
    offload: bool = False
    """For a small GPU: keep networks in main memory, copy one at a time to the GPU, and decode frames in tiles."""
    compile: bool | None = None
    """Compile shot decoder and frame decoder: the first turn takes longer, later turns less. None: by `speed`."""
    sampler: Sampler | None = None
    precision: Precision | None = None
    """None: `half`, or by `speed`."""
    tiled: bool = False
    """Decode frames in tiles, which takes less memory."""
    speed: Speed | None = None
    frames: FrameDecoder = "full"

    def __post_init__(self) -> None:
        if self.offload and self.precision == "int8":
            raise UserError("--offload does not go with --precision int8, which keeps all networks on the GPU")

    @property
    def preset(self) -> Preset:
        """Meaning of the speed."""
        return SPEEDS[self.speed] if self.speed else Preset()

    def sampling_of(self, config: ModelConfig) -> Sampling:
        """Return a checkpoint's sampling with what these options ask for. UserError if a value is out of range."""
        own = self.preset.sampling_of(config.sampling)
        asked = own.replaced(sampler=self.sampler, steps=self.steps, guidance=self.guidance)
        if asked.sampler == "renoise" and not (config.distilled and config.distilled.steps):
            raise UserError(
                "the sampler renoise is for a checkpoint distilled to few steps, which this one is not: take `ode`, or "
                "distil it with `animegamer train distill`"
            )
        return asked

    def doubt(self, config: ModelConfig) -> str | None:
        """Return a sentence if a checkpoint was not trained for the sampling that these options ask for."""
        asked, distilled = self.sampling_of(config), config.distilled
        if distilled and asked.guidance > 1:
            return (
                f"this checkpoint draws with guidance {distilled.guidance:g} by itself: --guidance {asked.guidance:g} "
                "comes on top and burns the pictures, so leave it out"
            )
        if distilled and distilled.steps and (asked.sampler, asked.steps) != ("renoise", distilled.steps):
            return f"this checkpoint was trained for {distilled.steps} steps of renoise, not for these"
        if not (distilled and distilled.steps) and asked.steps <= FEW_STEPS < config.sampling.steps:
            return (
                f"{asked.steps} steps of a checkpoint that was not distilled to few steps draw coarse shots: "
                "`animegamer train distill` trains it for them"
            )
        return None


def check_steps(steps: int) -> None:
    """Raise UserError for a step count that does not divide 1000: such a run leaves noise in the sample."""
    if steps not in STEP_COUNTS:
        counts = ", ".join(map(str, STEP_COUNTS))
        raise UserError(f"steps must divide {TIMESTEPS}, unlike {steps}: choose one of {counts}")


def unwatched(part: str, done: float, total: float) -> None:
    """Ignore progress: the default callback."""
