"""Noise, the training objective and the sampler of the shot decoder.

The noise schedule is CogVideoX's: 1000 timesteps, betas linear in their square root, the signal-to-noise ratio
shifted by 3 and then rescaled so that the last timestep is pure noise, velocity prediction. `abar` is the share of
the signal's variance left at a timestep: 0 at 999. Everything here computes in float32.

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, L shot tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from diffusers import CogVideoXDPMScheduler
from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor

from models.shot_decoder import ShotDecoder, denoise, latent_shape
from pipeline.core.errors import UserError

TIMESTEPS = 1000
STEP_COUNTS = tuple(steps for steps in range(1, TIMESTEPS + 1) if TIMESTEPS % steps == 0)
"""Numbers of steps that lead to a clean sample: the scheduler's stride is an integer."""

DenoiseFn = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(latents_BTCHW, shot_tokens_BLD, timesteps_B, scope_B or None) -> velocity_BTCHW."""


@dataclass(frozen=True)
class Guidance:
    """Strength with which the sample is pushed from the unconditional prediction towards the conditional one.

    `published` repeats a slip of the published sampler (and of diffusers' CogVideoX pipeline with dynamic guidance):
    its scale should grow over the steps by a cosine, but it takes the timestep for the step, so that the scale jumps
    between 1 and 1 + `scale`. Kept because the released weights were judged by it.
    """

    kind: Literal["constant", "published"] = "constant"
    scale: float = 6.0

    @property
    def is_off(self) -> bool:
        """True if the unconditional prediction never counts, so that it need not be computed."""
        return self.scale == 1.0

    def at(self, timestep: int, steps: int) -> float:
        """Scale at a timestep of a run of so many steps."""
        if self.kind == "constant" or self.is_off:
            return self.scale
        taken_for_progress = ((steps - timestep) / steps) ** 5
        return 1 + self.scale * (1 - math.cos(math.pi * taken_for_progress)) / 2


def make_scheduler() -> CogVideoXDPMScheduler:
    """The noise schedule with its solver, DPM-Solver++ (2M, stochastic); a new one for every run: it has state."""
    return CogVideoXDPMScheduler(
        num_train_timesteps=TIMESTEPS,
        beta_start=0.00085,
        beta_end=0.0120,
        beta_schedule="scaled_linear",
        snr_shift_scale=3.0,
        rescale_betas_zero_snr=True,
        prediction_type="v_prediction",
        timestep_spacing="trailing",
        clip_sample=False,
    )


# sqrt(abar) and sqrt(1 - abar) of every timestep; taken in float64, where 1 - abar does not round
_ABAR = make_scheduler().alphas_cumprod.double()
_SIGNAL, _SPREAD = _ABAR.sqrt().float(), (1 - _ABAR).sqrt().float()


def noised(latents_BTCHW: Tensor, noise_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
    """Latents with the noise of a timestep each: sqrt(abar) latents + sqrt(1 - abar) noise."""
    signal_B1111, spread_B1111 = _shares(timesteps_B)
    return signal_B1111 * latents_BTCHW.float() + spread_B1111 * noise_BTCHW.float()


def velocity(latents_BTCHW: Tensor, noise_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
    """Target of the network: sqrt(abar) noise - sqrt(1 - abar) latents."""
    signal_B1111, spread_B1111 = _shares(timesteps_B)
    return signal_B1111 * noise_BTCHW.float() - spread_B1111 * latents_BTCHW.float()


def v_loss(predicted_BTCHW: Tensor, latents_BTCHW: Tensor, noise_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
    """Mean squared error of the velocity, one number a sample [B].

    It equals the published objective, the error of the clean latents weighted by 1 / (1 - abar).
    """
    error_BTCHW = predicted_BTCHW.float() - velocity(latents_BTCHW, noise_BTCHW, timesteps_B)
    return error_BTCHW.square().flatten(1).mean(dim=1)


def check_steps(steps: int) -> None:
    """UserError when a run of so many steps would end with noise left in the sample."""
    if steps not in STEP_COUNTS:
        raise UserError(f"steps must divide {TIMESTEPS}: one of {', '.join(map(str, STEP_COUNTS))}; not {steps}")


@torch.no_grad()
def sample(
    denoise_fn: DenoiseFn,
    latent_shape: tuple[int, int, int, int],
    shot_tokens_BLD: Tensor,
    unconditional_BLD: Tensor,
    scope_B: Tensor | None,
    *,
    generator: torch.Generator,
    steps: int,
    guidance: Guidance = Guidance(),
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Draw the latents of shots: [B, T, C, H, W] in float32, on the device of the shot tokens.

    `latent_shape` is (T, C, H, W). `unconditional_BLD` are the shot encoder's tokens of no shot. With guidance, both
    halves go through the network in one batch, unconditional first, under the same motion scopes. `generator` is one
    of the CPU, so that a seed gives the same shot on every device. `progress(done, total)` is called after each step
    and may raise to stop. UserError for a number of steps that does not divide 1000.
    """
    check_steps(steps)
    if generator.device.type != "cpu":
        raise ValueError(f"the generator must be one of the CPU, not of {generator.device}")
    batch = _Batch(denoise_fn, shot_tokens_BLD, unconditional_BLD, scope_B, guidance)
    device = shot_tokens_BLD.device
    scheduler = make_scheduler()
    scheduler.set_timesteps(steps)
    latents_BTCHW: Tensor = randn_tensor((len(shot_tokens_BLD), *latent_shape), generator, device, torch.float32)
    clean_BTCHW: Tensor | None = None
    before: int | None = None
    for done, timestep in enumerate(scheduler.timesteps.tolist(), start=1):
        velocity_BTCHW = batch.velocity(latents_BTCHW, timestep, guidance.at(timestep, steps))
        latents_BTCHW, clean_BTCHW = scheduler.step(
            velocity_BTCHW, clean_BTCHW, timestep, before, latents_BTCHW, generator=generator, return_dict=False
        )
        before = timestep
        if progress:
            progress(done, steps)
    return latents_BTCHW


def draw(
    decoder: ShotDecoder,
    shot_tokens_BLD: Tensor,
    unconditional_BLD: Tensor,
    scope_B: Tensor | None,
    *,
    seed: int,
    steps: int,
    guidance: Guidance,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Draw the latents of shots with a shot decoder, [B, T, C, H, W]; the rest is as in `sample`."""
    return sample(
        partial(denoise, decoder),
        latent_shape(decoder),
        shot_tokens_BLD,
        unconditional_BLD,
        scope_B,
        generator=torch.Generator().manual_seed(seed),
        steps=steps,
        guidance=guidance,
        progress=progress,
    )


class _Batch:
    """Constants of a run: the conditions, doubled once when there is guidance."""

    def __init__(
        self, denoise_fn: DenoiseFn, tokens_BLD: Tensor, none_BLD: Tensor, scope_B: Tensor | None, guidance: Guidance
    ) -> None:
        self.denoise_fn = denoise_fn
        self.copies = 1 if guidance.is_off else 2
        self.tokens_BLD = tokens_BLD
        if self.copies == 2:
            self.tokens_BLD = torch.cat([none_BLD.expand_as(tokens_BLD).to(tokens_BLD), tokens_BLD])
        self.scope_B = None if scope_B is None else scope_B.to(tokens_BLD.device).repeat(self.copies)

    def velocity(self, latents_BTCHW: Tensor, timestep: int, scale: float) -> Tensor:
        """Guided velocity; guiding it is guiding the clean latents, since these are linear in it."""
        latents_BTCHW = latents_BTCHW.repeat(self.copies, 1, 1, 1, 1)
        timesteps_B = torch.full((len(latents_BTCHW),), timestep, device=latents_BTCHW.device)
        predicted_BTCHW = self.denoise_fn(latents_BTCHW, self.tokens_BLD, timesteps_B, self.scope_B).float()
        if self.copies == 1:
            return predicted_BTCHW
        without_BTCHW, with_BTCHW = predicted_BTCHW.chunk(2)
        return without_BTCHW + scale * (with_BTCHW - without_BTCHW)


def _shares(timesteps_B: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of signal and noise at a timestep each, [B, 1, 1, 1, 1]."""
    signal_B, spread_B = (table.to(timesteps_B.device)[timesteps_B] for table in (_SIGNAL, _SPREAD))
    return signal_B.view(-1, 1, 1, 1, 1), spread_B.view(-1, 1, 1, 1, 1)
