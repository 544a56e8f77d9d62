"""Frame encoding and decoding: frames to latents and back with CogVideoX's autoencoder.

Latents here are always scaled: the shot decoder gets the autoencoder's latents times its scaling factor. The
autoencoder packs 8 x 8 pixels into one. It packs the first frame alone and then every four frames into one latent
frame, so 17 frames into 5. An autoencoder with 3 p^2 input channels takes patches of p x p pixels (`to_patches`), as
Wan 2.2's does, and packs less itself. Size `mini` uses one, since its layers then cost a quarter.

It computes in its own precision. Tiling and slicing are switched on by the caller (`autoencoder.enable_tiling()`): only
the caller knows the GPU's memory.

Letters of the shapes: B batch, T frames or latent frames, H W pixels or latent pixels, C channels, RGB in frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import AutoencoderKLCogVideoX
from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle, pixel_unshuffle

RGB = 3
"""Channels of a picture, and of the input of an autoencoder that does not take patches."""
LATENT_CHANNELS = 16
"""Channels of the latents of CogVideoX's autoencoder, and of the tiny one."""


@dataclass(frozen=True)
class Moments:
    """Mean and log variance of a clip's latents, a normal distribution per element, scaled, in float32.

    A dataset stores the moments, so that training can draw new latents in each epoch.
    """

    mean_BTCHW: Tensor
    logvar_BTCHW: Tensor

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw latents mean + exp(logvar / 2) e, e standard normal, [B, T, C, H, W]."""
        mean_BTCHW = self.mean_BTCHW
        noise_BTCHW: Tensor = randn_tensor(mean_BTCHW.shape, generator, mean_BTCHW.device, mean_BTCHW.dtype)
        return mean_BTCHW + (0.5 * self.logvar_BTCHW).exp() * noise_BTCHW


@torch.no_grad()
def encode_frames(autoencoder: AutoencoderKLCogVideoX, frames_BTHWC: Tensor) -> Moments:
    """Moments of the latents of uint8 RGB frames, on the autoencoder's device.

        mean = s mu,    logvar = log sigma^2 + 2 log s

    mu and sigma^2 are the autoencoder's moments of frames / 127.5 - 1, s is the scaling factor. ValueError when the
    number of frames is not 8n + 1: the autoencoder accepts others, but packs them differently than in training.
    """
    frames = frames_BTHWC.shape[1]
    if frames % 8 != 1:
        raise ValueError(f"a shot has 8n + 1 frames, not {frames}: repeat the last one")
    patches_BCTHW = to_patches(frames_BTHWC.to(autoencoder.device), autoencoder.config.in_channels)
    found = autoencoder.encode(patches_BCTHW.to(autoencoder.dtype)).latent_dist
    factor = scaling_factor(autoencoder)
    return Moments(
        mean_BTCHW=(found.mean.float() * factor).transpose(1, 2),
        logvar_BTCHW=(found.logvar.float() + 2 * math.log(factor)).transpose(1, 2),
    )


@torch.no_grad()
def decode_latents(
    autoencoder: AutoencoderKLCogVideoX, latents_BTCHW: Tensor, show: Callable[[Tensor], None] | None = None
) -> Tensor:
    """Decode scaled latents to frames [B, 4T - 3, H, W, 3], uint8 RGB, on the autoencoder's device.

    The autoencoder decodes groups of two or three latent frames in order. `show` gets the frames of the first group
    while the other groups are missing, or all frames if the decoding is tiled.
    """
    latents_BTCHW = latents_BTCHW.to(autoencoder.device, torch.float32) / scaling_factor(autoencoder)

    is_early = show is not None and not autoencoder.use_tiling  # a tile holds a part of every frame

    def show_first(_module: nn.Module, _inputs: Any, output: tuple[Tensor, Any]) -> None:
        hook.remove()
        if show and is_early:
            show(_to_frames(output[0]))

    with autoencoder.decoder.register_forward_hook(show_first) as hook:
        frames_BTHWC = _to_frames(autoencoder.decode(latents_BTCHW.transpose(1, 2).to(autoencoder.dtype)).sample)
    if show and not is_early:
        show(frames_BTHWC)
    return frames_BTHWC


def _to_frames(patches_BCTHW: Tensor) -> Tensor:
    """Return an autoencoder's output as frames, uint8 RGB."""
    pictures_BTCHW = pixel_shuffle(patches_BCTHW.float().transpose(1, 2), _patch_side(patches_BCTHW.shape[1]))
    return ((pictures_BTCHW + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).permute(0, 1, 3, 4, 2).contiguous()


def to_patches(frames_BTHWC: Tensor, channels: int) -> Tensor:
    """Return uint8 RGB frames as an autoencoder's float32 input [B, C, T, H / p, W / p], -1 to 1, with C = 3 p^2."""
    pictures_BTCHW = frames_BTHWC.permute(0, 1, 4, 2, 3).float() / 127.5 - 1
    return pixel_unshuffle(pictures_BTCHW, _patch_side(channels)).transpose(1, 2)


def _patch_side(channels: int) -> int:
    return math.isqrt(channels // 3)


def scaling_factor(autoencoder: AutoencoderKLCogVideoX) -> float:
    """Factor from the autoencoder's latents to the shot decoder's; 1.15258426 for CogVideoX 2B."""
    return float(autoencoder.config.scaling_factor)
