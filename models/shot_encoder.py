"""Shot encoder, and the frozen CLIP and T5 in front of it: first frame and motion text to shot tokens.

With x the text states of T5, p the patch states of CLIP and [ , ] concatenation:

    proj(s)     = W2 gelu(W1 s + b1) + b2          text and patches have their own weights
    shot tokens = [LN(proj_text(x)), LN(proj_image(p))]

Module names and the LayerNorm epsilon come from the released weights (paper arXiv 2504.01014, section 3.2). Trained
weights depend on the states, so CLIP and T5 follow the published code exactly:

- pictures: CLIP ViT-B/16 of LAION, the states before its last layer, without the class token and without the final
  norm. A picture is resized to a square by blur and bicubic interpolation with aligned corners, never cropped;
- texts: T5 1.1 XXL, padded to a fixed length without an attention mask, so that padding is attended to like text.

Letters of the shapes: B batch, H W pixels, C channels (RGB), L shot tokens, N text tokens, P patches, D width of each.
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

HEAD_WIDTH = 64
"""Width of a head of the cross-attention ablation; equal to the shot decoder's."""
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


class ShotEncoder(nn.Module):
    """Encoder of motion text and first frame into the tokens of a shot.

    `config.variant` selects the method, `mlp`, or one of the paper's ablations. `linear` has one linear layer per
    input. Both keep every text token. `addition` adds the mean text token to every patch token, and in
    `cross_attention` the patch tokens attend to the text tokens. These two keep only the patches. The paper names them
    without describing them, so their construction is our interpretation.
    """

    def __init__(self, config: ShotEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.text_proj = _projection(config.text_width, config)
        self.image_proj = _projection(config.image_width, config)
        self.text_norm = nn.LayerNorm(config.width, eps=1e-5)
        self.image_norm = nn.LayerNorm(config.width, eps=1e-5)
        if config.variant == "cross_attention":
            self.attention = nn.MultiheadAttention(config.width, _heads(config.width), batch_first=True)

    def forward(self, text_BND: Tensor, patches_BPD: Tensor) -> Tensor:
        """Return the shot tokens [B, config.shot_tokens, config.width].

        `text_BND` are the text encoder's states [B, text_tokens, text_width], `patches_BPD` the image encoder's
        [B, image_tokens, image_width]. ValueError when the number of tokens differs from the configuration's.
        """
        counts = text_BND.shape[1], patches_BPD.shape[1]
        expected = self.config.text_tokens, self.config.image_tokens
        if counts != expected:
            raise ValueError(f"text and patch tokens must be {expected} in number (shot_encoder), not {counts}")
        text_BND = self.text_norm(self.text_proj(text_BND))
        patches_BPD = self.image_norm(self.image_proj(patches_BPD))
        if self.config.variant == "addition":
            return torch.add(patches_BPD, text_BND.mean(dim=1, keepdim=True))
        if self.config.variant == "cross_attention":
            seen_BPD, _ = self.attention(patches_BPD, text_BND, text_BND, need_weights=False)
            return torch.add(patches_BPD, seen_BPD)
        return torch.cat([text_BND, patches_BPD], dim=1)

    def unconditional(self, batch: int) -> Tensor:
        """Unconditional shot tokens [batch, L, D] for guidance: the encoder's output for zero states.

        They are not zero, because of the biases and the norms. Training drops a condition the same way.
        """
        like, config = self.text_norm.weight, self.config
        text_BND = like.new_zeros(batch, config.text_tokens, config.text_width)
        patches_BPD = like.new_zeros(batch, config.image_tokens, config.image_width)
        return self(text_BND, patches_BPD)  # type: ignore[no-any-return]


def _projection(width: int, config: ShotEncoderConfig) -> nn.Sequential:
    """Projection of states of a width to the width of a shot token."""
    first = nn.Linear(width, config.width)
    if config.variant == "linear":
        return nn.Sequential(first)
    return nn.Sequential(first, nn.GELU(), nn.Linear(config.width, config.width))


def _heads(width: int) -> int:
    """Number of cross-attention heads: width / HEAD_WIDTH, or 1 if HEAD_WIDTH does not divide the width."""
    return width // HEAD_WIDTH if width % HEAD_WIDTH == 0 else 1


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
            list(texts), padding="max_length", truncation=True, max_length=self.config.text_tokens, return_tensors="pt"
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
