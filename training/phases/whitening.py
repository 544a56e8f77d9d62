"""Whitening of an autoencoder's latents by half: another basis, in which the shot decoder learns details sooner.

The latents of a small autoencoder are unlike those of a published one. Two directions of its 16 channels, brightness
and colour, may have four fifths of the variance. Noise then hides all details but at the lowest noise levels. After the
fit, the latents are centred, rotated and scaled. With their mean m and covariance U diag(l) U^T:

    z' = A (z - m),    A = s diag(l)^(-gamma/2) U^T,    gamma = 1/2

and s such that the mean variance of z' is 1. With gamma = 1 the latents would be white. But then brightness and colour
no longer outweigh the rest, and characters that differ in colour are drawn worse (docs/results/miniature.md).

Every layer that computes or reads latents is linear in them, so the change of basis goes into its weights, and the
scaling factor is 1. Reconstructions stay the same, except near the edges of a frame: the decoder pads latents with
zeros, which now stand for the mean.

Skorokhodov et al. (arXiv 2502.14831) describe how the spectrum of latents decides what diffusion learns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from diffusers import AutoencoderKLCogVideoX
from diffusers.models.autoencoders.autoencoder_kl_cogvideox import CogVideoXSpatialNorm3D
from torch import Tensor

_POWER = 0.5
"""Gamma: 0 keeps the variances as they are, 1 makes them equal."""
_LEAST = 1e-3
"""Least variance of a direction as a share of the greatest: noise of an untrained direction is not magnified more."""


@torch.no_grad()
def whiten(autoencoder: AutoencoderKLCogVideoX, means_NTCHW: Tensor, spreads_C: Tensor) -> None:
    """Change the basis of an autoencoder's latents by their statistics; see the module's docstring.

    Args:
        autoencoder: network without quantization layers, changed in place.
        means_NTCHW: means of its latents with a scaling factor of 1, of clips as it was fitted to.
        spreads_C: mean variance of its latents around their means; the new encoder has constant ones.
    """
    values_CN = means_NTCHW.float().movedim(2, 0).flatten(1)
    mean_C, covariance_CC = values_CN.mean(dim=1), torch.cov(values_CN)
    variances_C, directions_CC = torch.linalg.eigh(covariance_CC)
    scales_C = variances_C.clamp(min=_LEAST * float(variances_C[-1])).pow(-_POWER / 2)
    scales_C /= (scales_C.square() * variances_C).mean().sqrt()
    to_white_CC, from_white_CC = scales_C[:, None] * directions_CC.T, directions_CC / scales_C
    # 1. The encoder's last layer computes z' and its variance.
    last, size = autoencoder.encoder.conv_out.conv, len(mean_C)
    last.weight[:size] = torch.einsum("ij,j...->i...", to_white_CC, last.weight[:size])
    last.bias[:size] = to_white_CC @ (last.bias[:size] - mean_C)
    last.weight[size:] = 0.0
    last.bias[size:] = (to_white_CC.square() @ spreads_C).log()
    # 2. Every layer that reads latents reads z': W z + b = (W A^-1) z' + (b + W m).
    for layer in _readers(autoencoder):
        layer.bias.add_(layer.weight.flatten(2).sum(dim=2) @ mean_C)
        layer.weight.copy_(torch.einsum("oi...,ij->oj...", layer.weight, from_white_CC))


def _readers(autoencoder: AutoencoderKLCogVideoX) -> Iterator[Any]:
    """Yield the layers that read latents: the decoder's first, and the modulation by latents of its norms."""
    yield autoencoder.decoder.conv_in.conv
    for module in autoencoder.decoder.modules():
        if isinstance(module, CogVideoXSpatialNorm3D):
            yield from (module.conv_y.conv, module.conv_b.conv)
