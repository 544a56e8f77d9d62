"""Frozen condition encoders (CLIP, T5): first frame to patch states, motion text to text states.

Their states are the input of the shot encoder. Both follow the published code exactly, because trained weights depend
on it:

- pictures: CLIP ViT-B/16 of LAION, the states before its last layer, without the class token and without the final
  norm. A picture is resized to a square by blur and bicubic interpolation with aligned corners, never cropped;
- texts: T5 1.1 XXL, padded to a fixed length without an attention mask, so that padding is attended to like text.

Letters of the shapes: B batch, H W pixels, C channels (RGB), N text tokens, P patches, D width of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms.v2.functional import gaussian_blur
from transformers import CLIPVisionModel, PreTrainedTokenizerBase, T5EncoderModel

from models.config import Base, ShotEncoderConfig
from models.hub import load_base, load_tokenizer
from pipeline.core.errors import UserError

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


class ImageEncoder(nn.Module):
    """CLIP, frozen, in evaluation mode. UserError when its sizes differ from the configuration's."""

    def __init__(self, network: CLIPVisionModel, config: ShotEncoderConfig) -> None:
        super().__init__()
        _check("image_pixels", config.image_pixels, network.config.image_size)
        _check("image_patch", config.image_patch, network.config.patch_size)
        _check("image_width", config.image_width, network.config.hidden_size)
        self.network, self.config = network, config
        self.requires_grad_(False).eval()

    @classmethod
    def load(
        cls,
        config: ShotEncoderConfig,
        base: Base,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Load it from a folder or the hub. The base may be a whole CLIP: its other half is ignored."""
        return cls(load_base("image_encoder", CLIPVisionModel, base, dtype), config).to(device)

    @torch.no_grad()
    def patches(self, frames_BHWC: Tensor) -> Tensor:
        """Patch states [B, P, D] in float32 of uint8 RGB pictures p of any size.

        patches = h_{K-1}[1:]    h_k the states after layer k of K; position 0: class token
        """
        pixels_BCHW = clip_pixels(frames_BHWC.to(self.network.device), self.config.image_pixels)
        states = self.network(pixel_values=pixels_BCHW.to(self.network.dtype), output_hidden_states=True).hidden_states
        patches_BPD: Tensor = states[-2][:, 1:]
        return patches_BPD.float()


class TextEncoder(nn.Module):
    """T5 with its tokenizer, frozen, in evaluation mode. UserError when its width differs from the configuration's."""

    def __init__(self, network: T5EncoderModel, tokenizer: PreTrainedTokenizerBase, config: ShotEncoderConfig) -> None:
        super().__init__()
        _check("text_width", config.text_width, network.config.d_model)
        self.network, self.tokenizer, self.config = network, tokenizer, config
        self.requires_grad_(False).eval()

    @classmethod
    def load(
        cls,
        config: ShotEncoderConfig,
        base: Base,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Load it from a folder or the hub, with the tokenizer of the same repository; a T5's decoder is ignored."""
        network = load_base("text_encoder", T5EncoderModel, base, dtype)
        return cls(network, load_tokenizer(base), config).to(device)

    @torch.no_grad()
    def states(self, texts: Sequence[str]) -> Tensor:
        """Text states [B, config.text_tokens, D] in float32; a longer text is truncated."""
        tokens = self.tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=self.config.text_tokens,
            return_tensors="pt",
        )
        states_BND: Tensor = self.network(input_ids=tokens.input_ids.to(self.network.device)).last_hidden_state
        return states_BND.float()


def clip_pixels(frames_BHWC: Tensor, side: int) -> Tensor:
    """Input of CLIP [B, C, side, side] in float32 from uint8 RGB pictures p of any size.

    x = (resize(p / 255) - mean) / std    per channel, with CLIP_MEAN and CLIP_STD
    """
    pictures_BCHW = resize_to_square(frames_BHWC.permute(0, 3, 1, 2).float() / 255, side)
    mean_C11, std_C11 = (pictures_BCHW.new_tensor(each).view(3, 1, 1) for each in (CLIP_MEAN, CLIP_STD))
    return (pictures_BCHW - mean_C11) / std_C11


def resize_to_square(pictures_BCHW: Tensor, side: int) -> Tensor:
    """Resize pictures to `side` x `side` pixels, ignoring their aspect ratio.

    With f = size / side along an axis, a picture that shrinks along any axis is first low-pass filtered by a Gaussian:

        sigma  = max((f - 1) / 2, 0.001)
        kernel = the odd one of n and n + 1, n = floor(max(4 sigma, 3))

    Bicubic interpolation with aligned corners follows. Torch's own antialiasing places the pixels differently.
    """
    factors = [pictures_BCHW.shape[-1] / side, pictures_BCHW.shape[-2] / side]  # x, then y
    if max(factors) > 1:
        sigmas = [max((factor - 1) / 2, 0.001) for factor in factors]
        widths = [int(max(4 * sigma, 3)) // 2 * 2 + 1 for sigma in sigmas]  # rounded up to odd
        pictures_BCHW = gaussian_blur(pictures_BCHW, kernel_size=widths, sigma=sigmas)
    return functional.interpolate(pictures_BCHW, size=(side, side), mode="bicubic", align_corners=True)


def _check(field: str, configured: int, loaded: int) -> None:
    if configured != loaded:
        raise UserError(f"shot_encoder.{field} is {configured}, but the loaded encoder has {loaded}")
