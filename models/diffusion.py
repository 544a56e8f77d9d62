"""Diffusion of the shot decoder: noise schedule, v-prediction loss, classifier-free guidance, samplers.

t is the timestep in 0..999, x0 the clean latents, e standard normal noise, x_t the noised latents and v the velocity.
abar_t is the share of the signal's variance left at t. Forward process and target of the network:

    x_t = sqrt(abar_t) x0 + sqrt(1 - abar_t) e
    v   = sqrt(abar_t) e  - sqrt(1 - abar_t) x0
    x0  = sqrt(abar_t) x_t - sqrt(1 - abar_t) v

The noise schedule is CogVideoX's (see `make_scheduler`). The last timestep is pure noise, since abar_999 = 0. All
computation is in float32.

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
from torch import Tensor

from models.engine_options import TIMESTEPS, Sampler, check_steps
from models.shot_decoder import ShotDecoder, denoise, latent_shape

DenoiseFn = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Denoising network: (latents_BTCHW, shot_tokens_BLD, timesteps_B, scope_B or None) -> velocity_BTCHW."""


@dataclass(frozen=True)
class Guidance:
    """Classifier-free guidance: extrapolation from the unconditional velocity v_u to the conditional velocity v_c.

        v = v_u + w(t) (v_c - v_u)
        constant:   w(t) = scale
        published:  w(t) = 1 + scale (1 - cos(pi ((N - t) / N)^5)) / 2,    N steps, t the timestep in 0..999

    `published` repeats a bug of the published sampler (and of diffusers' CogVideoX pipeline with dynamic guidance).
    The cosine should grow with the step index 0..N, but is given the timestep t, so w jumps between 1 and 1 + `scale`.
    We keep the bug because the released weights were evaluated with this sampler.
    """

    kind: Literal["constant", "published"] = "constant"
    scale: float = 6.0
    interval: tuple[int, int] = (0, TIMESTEPS - 1)
    """First and last timestep with guidance; elsewhere v = v_c (Kynkäänniemi et al., arXiv 2404.07724)."""

    @property
    def is_off(self) -> bool:
        """Guidance switched off: scale 1, where v = v_c and the unconditional prediction need not be computed."""
        return self.scale == 1.0

    def at(self, timestep: int, steps: int) -> float:
        """Scale w(t) at a timestep of a run with `steps` steps."""
        if not self.interval[0] <= timestep <= self.interval[1]:
            return 1.0
        if self.kind == "constant" or self.is_off:
            return self.scale
        phase = ((steps - timestep) / steps) ** 5  # should be the step index, not the timestep: see the class
        return 1 + self.scale * (1 - math.cos(math.pi * phase)) / 2


def make_scheduler() -> CogVideoXDPMScheduler:
    """CogVideoX's noise schedule with its solver, stochastic DPM-Solver++ (2M). It has state: make one for every run.

    The schedule, with b_i the betas, is linear in sqrt(b). The signal-to-noise ratio is divided by 3, then sqrt(abar)
    is shifted and scaled so that it is 0 at 999 and unchanged at 0:

        sqrt(b_i) = sqrt(0.00085) + i / 999 (sqrt(0.0120) - sqrt(0.00085)),    i = 0..999
        a_t       = prod_{i <= t} (1 - b_i)
        c_t       = a_t / (3 - 2 a_t)
        sqrt(abar_t) = (sqrt(c_t) - sqrt(c_999)) sqrt(c_0) / (sqrt(c_0) - sqrt(c_999))
    """
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


# sqrt(abar) and sqrt(1 - abar) of every timestep, computed in float64, where 1 - abar does not round
_ABAR = make_scheduler().alphas_cumprod.double()
_SIGNAL, _SPREAD = _ABAR.sqrt().float(), (1 - _ABAR).sqrt().float()


def noised(latents_BTCHW: Tensor, noise_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
    """Noised latents x_t = sqrt(abar_t) x0 + sqrt(1 - abar_t) e, with a timestep t for each sample."""
    signal_B1111, spread_B1111 = _shares(timesteps_B)
    return signal_B1111 * latents_BTCHW.float() + spread_B1111 * noise_BTCHW.float()


def velocity(latents_BTCHW: Tensor, noise_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
    """Velocity v = sqrt(abar_t) e - sqrt(1 - abar_t) x0: the target of the network."""
    signal_B1111, spread_B1111 = _shares(timesteps_B)
    return signal_B1111 * noise_BTCHW.float() - spread_B1111 * latents_BTCHW.float()


def clean(noised_BTCHW: Tensor, velocity_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
    """Clean latents x0 = sqrt(abar_t) x_t - sqrt(1 - abar_t) v.

    This form is finite at every timestep. At 999, where abar_t = 0, it gives -v; the form through the noise e divides
    by sqrt(abar_t).
    """
    signal_B1111, spread_B1111 = _shares(timesteps_B)
    return signal_B1111 * noised_BTCHW.float() - spread_B1111 * velocity_BTCHW.float()


def timesteps_of(steps: int) -> list[int]:
    """Timesteps at which a run of `steps` steps calls the network, from 999 down. UserError as in `sample`."""
    check_steps(steps)
    scheduler = make_scheduler()
    scheduler.set_timesteps(steps)
    return [int(timestep) for timestep in scheduler.timesteps]


def v_loss(predicted_BTCHW: Tensor, latents_BTCHW: Tensor, noise_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
    """Mean squared error of the velocity, one number per sample [B].

        loss = mean((v' - v)^2) = mean((x0' - x0)^2) / (1 - abar_t)

    v' is the predicted velocity and x0' = sqrt(abar_t) x_t - sqrt(1 - abar_t) v'. The right side is the published
    objective: the error of the clean latents weighted by 1 / (1 - abar_t).
    """
    error_BTCHW = predicted_BTCHW.float() - velocity(latents_BTCHW, noise_BTCHW, timesteps_B)
    return error_BTCHW.square().flatten(1).mean(dim=1)


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
    sampler: Sampler = "sde",
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Draw the latents of shots: [B, T, C, H, W] in float32, on the device of the shot tokens.

    One step goes from timestep t to s = t - 1000 / steps, with abar_s = 1 after the last step, fresh noise z and
    lambda_t = log sqrt(abar_t / (1 - abar_t)):

        x0  = sqrt(abar_t) x_t - sqrt(1 - abar_t) v(x_t, t)    v with guidance
        h   = lambda_s - lambda_t,    r = h_before / h
        d   = x0 + (x0 - x0_before) / (2 r)                    d = x0 in the first and the last step
        sde:  x_s = sqrt((1 - abar_s) / (1 - abar_t)) exp(-h) x_t + sqrt(abar_s) (1 - exp(-2 h)) d
                    + sqrt((1 - abar_s) (1 - exp(-2 h))) z
        ode:  x_s = sqrt((1 - abar_s) / (1 - abar_t)) x_t + sqrt(abar_s) (1 - exp(-h)) d
        renoise:  x_s = sqrt(abar_s) x0 + sqrt(1 - abar_s) z

    The first two are DPM-Solver++ (2M) (Lu et al., arXiv 2211.01095, section 4). `ode` draws noise only at the start.
    `renoise` is for a network distilled to few steps, whose x0 is a sample at any t (Yin et al., arXiv 2405.14867).

    `latent_shape` is (T, C, H, W). `unconditional_BLD` are the shot encoder's unconditional tokens. With guidance,
    both halves go through the network in one batch, unconditional first, with the same motion scopes. `generator`
    must be a CPU generator, so that a seed gives the same shot on every device. `progress(done, total)` is called
    after each step and may raise to stop.

    Raises:
        UserError: `steps` does not divide 1000.
        ValueError: `generator` is not on the CPU.
    """
    timesteps = timesteps_of(steps)
    if generator.device.type != "cpu":
        raise ValueError(f"the generator must be on the CPU, not on {generator.device}")
    # 1. Stack the conditions of both halves of the guidance once: they are the same in every step.
    batch = _Batch(denoise_fn, shot_tokens_BLD, unconditional_BLD, scope_B, guidance)
    # 2. Start from pure noise at t = 999, drawn on the CPU, so that a seed gives the same shot on every device.
    noise = partial(_noise, (len(shot_tokens_BLD), *latent_shape), generator, shot_tokens_BLD.device)
    scheduler = make_scheduler()
    latents_BTCHW = noise()
    clean_BTCHW: Tensor | None = None
    before: int | None = None
    for done, timestep in enumerate(timesteps, start=1):
        # 3. Predict the velocity at x_t, extrapolated from the unconditional to the conditional one.
        velocity_BTCHW = batch.velocity(latents_BTCHW, timestep, guidance.at(timestep, steps))
        # 4. Go from x_t to x_s. The solver is of second order: it extrapolates x0 from this step's and the last one's,
        #    and needs the last timestep for the ratio of the step lengths.
        places = before, timestep, timestep - TIMESTEPS // steps
        if sampler == "ode":
            latents_BTCHW, clean_BTCHW = _ode_step(velocity_BTCHW, clean_BTCHW, places, latents_BTCHW)
        elif sampler == "renoise":
            latents_BTCHW = _renoised(velocity_BTCHW, places[1:], latents_BTCHW, noise)
        else:
            found = _sde_step(scheduler, velocity_BTCHW, clean_BTCHW, places, latents_BTCHW, noise)
            latents_BTCHW, clean_BTCHW = found
        before = timestep
        if progress:
            progress(done, steps)
    return latents_BTCHW


def _noise(shape: tuple[int, ...], generator: torch.Generator, device: torch.device, draws: int = 1) -> Tensor:
    """Return the last of some draws on the CPU, in float32 on a device; a GPU gets it while it computes."""
    pinned = device.type == "cuda"
    for _ in range(draws):
        noise_BTCHW = torch.randn(shape, generator=generator, pin_memory=pinned)
    return noise_BTCHW.to(device, non_blocking=True)


def _sde_step(
    scheduler: CogVideoXDPMScheduler,
    velocity_BTCHW: Tensor,
    clean_before_BTCHW: Tensor | None,
    timesteps: tuple[int | None, int, int],
    x_BTCHW: Tensor,
    noise: Callable[..., Tensor],
) -> tuple[Tensor, Tensor]:
    """Return x_s and x0 by `sde` of `sample`; arguments as in `_ode_step`.

    The numbers equal those of `scheduler.step`, which would wait for the GPU to copy its noise.
    """
    before, now, after = timesteps
    abar = scheduler.alphas_cumprod
    abar_now, abar_after = abar[now], abar[after] if after >= 0 else scheduler.final_alpha_cumprod
    abars = abar_now, abar_after, None if before is None else abar[before]
    h, ratio, _, _ = scheduler.get_variables(*abars)
    kept, added, *extrapolated = scheduler.get_mult(h, ratio, *abars)
    fresh = (1 - abar_after) ** 0.5 * (1 - (-2 * h).exp()) ** 0.5
    clean_BTCHW = abar_now**0.5 * x_BTCHW - (1 - abar_now) ** 0.5 * velocity_BTCHW
    direction_BTCHW, draws = clean_BTCHW, 1
    if clean_before_BTCHW is not None and after >= 0:
        direction_BTCHW = extrapolated[0] * clean_BTCHW - extrapolated[1] * clean_before_BTCHW
        draws = 2  # the scheduler draws for its first-order solution too, and drops it
    return kept * x_BTCHW - added * direction_BTCHW + fresh * noise(draws=draws), clean_BTCHW


def _ode_step(
    velocity_BTCHW: Tensor, clean_before_BTCHW: Tensor | None, timesteps: tuple[int | None, int, int], x_BTCHW: Tensor
) -> tuple[Tensor, Tensor]:
    """Return x_s and x0 by `ode` of `sample`; `timesteps` are the one before, t and s, negative after the last step."""
    before, now, after = timesteps
    signal, spread = _SIGNAL[now].item(), _SPREAD[now].item()
    clean_BTCHW = signal * x_BTCHW - spread * velocity_BTCHW
    if after < 0:
        return clean_BTCHW, clean_BTCHW
    step = _log_snr(after) - _log_snr(now)
    direction_BTCHW = clean_BTCHW
    if before is not None and clean_before_BTCHW is not None:  # the step from pure noise is infinite, its term is 0
        ratio = step / (_log_snr(now) - _log_snr(before))
        direction_BTCHW = clean_BTCHW + ratio / 2 * (clean_BTCHW - clean_before_BTCHW)
    kept, added = _SPREAD[after].item() / spread, -_SIGNAL[after].item() * math.expm1(-step)
    return kept * x_BTCHW + added * direction_BTCHW, clean_BTCHW


def _renoised(
    velocity_BTCHW: Tensor, timesteps: tuple[int, int], x_BTCHW: Tensor, noise: Callable[[], Tensor]
) -> Tensor:
    """Return x_s by `renoise` of `sample`; `timesteps` are t and s, negative after the last step."""
    now, after = (torch.full((len(x_BTCHW),), timestep, device=x_BTCHW.device) for timestep in timesteps)
    clean_BTCHW = clean(x_BTCHW, velocity_BTCHW, now)
    return noised(clean_BTCHW, noise(), after) if timesteps[1] >= 0 else clean_BTCHW


def _log_snr(timestep: int) -> float:
    """Half of the logarithm of the signal-to-noise ratio, lambda_t; minus infinity at pure noise."""
    abar = _ABAR[timestep].item()
    return math.log(abar / (1 - abar)) / 2 if abar > 0 else -math.inf


def draw(
    decoder: ShotDecoder,
    shot_tokens_BLD: Tensor,
    unconditional_BLD: Tensor,
    scope_B: Tensor | None,
    *,
    seed: int,
    steps: int,
    guidance: Guidance,
    sampler: Sampler = "sde",
    progress: Callable[[int, int], None] | None = None,
    before_BCHW: Tensor | None = None,
) -> Tensor:
    """Draw the latents of shots with a shot decoder, [B, T, C, H, W].

    `before_BCHW` is the ending of the shots before (see `denoise`), given in both halves of the guidance. For the other
    arguments see `sample`.
    """

    def denoised(latents_BTCHW: Tensor, tokens_BLD: Tensor, timesteps_B: Tensor, scope_B: Tensor | None) -> Tensor:
        copies = len(latents_BTCHW) // len(shot_tokens_BLD)
        before = None if before_BCHW is None else before_BCHW.repeat(copies, 1, 1, 1)
        return denoise(decoder, latents_BTCHW, tokens_BLD, timesteps_B, scope_B, before)

    return sample(
        denoised,
        latent_shape(decoder),
        shot_tokens_BLD,
        unconditional_BLD,
        scope_B,
        generator=torch.Generator().manual_seed(seed),
        steps=steps,
        guidance=guidance,
        sampler=sampler,
        progress=progress,
    )


class _Batch:
    """Conditions of a run, constant over its steps; with guidance stacked as [unconditional, conditional]."""

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
        """Guided velocity v_u + w (v_c - v_u). Guiding x0 instead is equivalent: at fixed x_t, x0 is affine in v."""
        size = len(latents_BTCHW)
        copies = 1 if scale == 1.0 else self.copies
        tokens_BLD, scope_B = self.tokens_BLD[-copies * size :], self.scope_B
        latents_BTCHW = latents_BTCHW.repeat(copies, 1, 1, 1, 1)
        timesteps_B = torch.full((len(latents_BTCHW),), timestep, device=latents_BTCHW.device)
        scope_B = None if scope_B is None else scope_B[-copies * size :]
        predicted_BTCHW = self.denoise_fn(latents_BTCHW, tokens_BLD, timesteps_B, scope_B).float()
        if copies == 1:
            return predicted_BTCHW
        without_BTCHW, with_BTCHW = predicted_BTCHW.chunk(2)
        return without_BTCHW + scale * (with_BTCHW - without_BTCHW)


def _shares(timesteps_B: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients sqrt(abar_t) and sqrt(1 - abar_t), each [B, 1, 1, 1, 1]."""
    signal_B, spread_B = (table.to(timesteps_B.device)[timesteps_B] for table in (_SIGNAL, _SPREAD))
    return signal_B.view(-1, 1, 1, 1, 1), spread_B.view(-1, 1, 1, 1, 1)
