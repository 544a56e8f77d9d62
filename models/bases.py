"""Bases with random weights: the published architectures at `full`, the same ones small at `tiny` and `mini`.

Small checkpoints hold them, saved in the hub's format. At `full` they serve to measure speed and memory without the
published weights; their output is meaningless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5EncoderModel,
)

from models.config import Component, ModelConfig, Size
from models.hub import quietly
from models.shot_decoder import SPATIAL_COMPRESSION, ShotDecoder, decoder_options
from models.tokens import MISTRAL_VOCABULARY, VOCABULARY, shipped_tokenizer
from pipeline.core.errors import UserError

_HEAD_WIDTH = 64


def save_random_base(component: Component, config: ModelConfig, folder: Path) -> None:
    """Write a frozen base with random weights in the hub's format: bfloat16 at `full`, else float32.

    Raises:
        UserError: at `full`, a base that play does not need.
    """
    device = (
        "cuda" if torch.cuda.is_available() and config.size == "full" else "cpu"
    )  # 7e9 random numbers: slow on a CPU
    with quietly():
        random_base(component, config, device).save_pretrained(str(folder))
    if component == "text_encoder":
        # T5's vocabulary is only on the hub; Mistral's is installed, and sufficient for an untrained encoder
        shipped_tokenizer().save_pretrained(str(folder))


def random_base(component: Component, config: ModelConfig, device: torch.device | str = "cpu") -> Any:
    """Build a frozen base with random weights on a device (`meta`: no weights). Precisions and errors as above."""
    if config.size != "full":
        with torch.device(device):
            return _SMALL[component](config, _SHAPES[config.size])
    if component not in _FULL:
        raise UserError(f"{component}: no random weights at full size; name the published one in `bases`")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return _FULL[component]()
    finally:
        torch.set_default_dtype(before)


@dataclass(frozen=True)
class _Shape:
    """Sizes of the bases of a small model that its configuration leaves open."""

    layers: int
    """Layers of language model and transformer."""
    image_layers: int
    channels: tuple[int, ...]
    """Widths of the autoencoder's levels, from pixels to latents; one that has less than four levels takes patches."""
    blocks: int
    """Residual blocks of a level of the autoencoder's encoder; its decoder has one more."""
    groups: int
    """Groups of the autoencoder's norms."""


_SHAPES: Mapping[Size, _Shape] = {
    # equal widths: without blocks nothing could change the width; only the middle block, which learns fast on a CPU
    "tiny": _Shape(layers=4, image_layers=3, channels=(24, 24, 24, 24), blocks=0, groups=4),
    "mini": _Shape(layers=6, image_layers=4, channels=(64, 64, 64), blocks=0, groups=8),
}


def _language_model(config: ModelConfig, shape: _Shape) -> MistralForCausalLM:
    width = config.shot_encoder.width
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=VOCABULARY if "language_model" in config.whole else MISTRAL_VOCABULARY,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=shape.layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=8192,
            sliding_window=None,
        )
    )


def _transformer(config: ModelConfig, shape: _Shape) -> CogVideoXTransformer3DModel:
    """Stock transformer to wrap; one that is trained whole is a shot decoder from the start."""
    whole = "transformer" in config.whole
    sizes = {
        "num_attention_heads": config.shot_encoder.width // _HEAD_WIDTH,
        "attention_head_dim": _HEAD_WIDTH,
        "num_layers": shape.layers,
        "time_embed_dim": 128,
        "text_embed_dim": config.shot_encoder.text_width,
        "sample_height": config.shot_decoder.height // SPATIAL_COMPRESSION,
        "sample_width": config.shot_decoder.width // SPATIAL_COMPRESSION,
    }
    return ShotDecoder(**sizes | decoder_options(config)) if whole else CogVideoXTransformer3DModel(**sizes)


def _autoencoder(config: ModelConfig, shape: _Shape) -> AutoencoderKLCogVideoX:
    levels = len(shape.channels)
    side = SPATIAL_COMPRESSION >> (levels - 1)  # of a patch: every level but the last halves height and width
    return AutoencoderKLCogVideoX(
        in_channels=3 * side**2,
        out_channels=3 * side**2,
        down_block_types=("CogVideoXDownBlock3D",) * levels,
        up_block_types=("CogVideoXUpBlock3D",) * levels,
        block_out_channels=shape.channels,
        layers_per_block=shape.blocks,
        norm_num_groups=shape.groups,
        sample_height=config.shot_decoder.height // side,
        sample_width=config.shot_decoder.width // side,
    )


def _text_encoder(config: ModelConfig, _shape: _Shape) -> T5EncoderModel:
    width = config.shot_encoder.text_width
    return T5EncoderModel(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=width,
            d_kv=width // 4,
            d_ff=2 * width,
            num_layers=2,
            num_heads=4,
            feed_forward_proj="gated-gelu",
        )
    )


def _image_encoder(config: ModelConfig, shape: _Shape) -> CLIPVisionModel:
    input_shape = config.shot_encoder
    return CLIPVisionModel(
        CLIPVisionConfig(
            hidden_size=input_shape.image_width,
            intermediate_size=2 * input_shape.image_width,
            num_hidden_layers=shape.image_layers,
            num_attention_heads=4,
            image_size=input_shape.image_pixels,
            patch_size=input_shape.image_patch,
        )
    )


def _full_language_model() -> MistralForCausalLM:
    # the other defaults are Mistral 7B v0.1's
    return MistralForCausalLM(MistralConfig(max_position_embeddings=32_768, rms_norm_eps=1e-5))


_SMALL: dict[Component, Callable[[ModelConfig, _Shape], Any]] = {
    "language_model": _language_model,
    "transformer": _transformer,
    "autoencoder": _autoencoder,
    "text_encoder": _text_encoder,
    "image_encoder": _image_encoder,
}
_FULL: dict[Component, Callable[[], Any]] = {
    "language_model": _full_language_model,
    "transformer": CogVideoXTransformer3DModel,
    "autoencoder": AutoencoderKLCogVideoX,
}
