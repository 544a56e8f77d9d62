"""Convolutions of stills: the causal 3-D convolutions of the autoencoder, cheaper on single frames.

A causal convolution pads the time axis by repeating the first frame. Over a single frame x its kernel W of K taps in
time therefore sees K copies of x, and the taps can be summed before the convolution:

    sum_k W_k * x = (sum_k W_k) * x

This is one 2-D convolution in the place of K, with the same gradients.
"""

from __future__ import annotations

from diffusers import AutoencoderKLCogVideoX
from diffusers.models.autoencoders.autoencoder_kl_cogvideox import CogVideoXCausalConv3d
from torch import Tensor
from torch.nn import functional


class StillConvolution(CogVideoXCausalConv3d):  # type: ignore[misc]  # diffusers has no types
    """Causal convolution that sums its taps in time over a single frame; other clips are convolved as before."""

    def forward(self, inputs: Tensor, conv_cache: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Convolve frames [B, C, T, H, W]. Return them, and the frames that the next ones need."""
        copies = self.time_kernel_size - 1
        if not copies or conv_cache is not None or inputs.shape[2] > 1:
            convolved: tuple[Tensor, Tensor] = super().forward(inputs, conv_cache)
            return convolved
        conv, weight_OCHW = self.conv, self.conv.weight.sum(dim=2)
        convolved_BCHW = functional.conv2d(inputs[:, :, 0], weight_OCHW, conv.bias, conv.stride[1:], conv.padding[1:])
        return convolved_BCHW[:, :, None], inputs.expand(-1, -1, copies, -1, -1)


def with_cheap_stills(autoencoder: AutoencoderKLCogVideoX) -> AutoencoderKLCogVideoX:
    """Let an autoencoder convolve single frames the cheap way. Weights and results stay; it is changed in place."""
    for module in autoencoder.modules():
        if type(module) is CogVideoXCausalConv3d:
            module.__class__ = StillConvolution
    return autoencoder
