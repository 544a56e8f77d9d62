"""Frozen bases with random weights: the published architectures at `full`, the same ones small at `tiny`.

`tiny` checkpoints hold them, saved in the hub's format. At `full` they serve to measure speed and memory without the
published weights; their output is meaningless.
"""

from __future__ import annotations

from collections.abc import Callable
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

from models.config import Component, ModelConfig
from models.hub import quietly
from models.tokens import MISTRAL_VOCABULARY, VOCABULARY, shipped_tokenizer
from pipeline.core.errors import UserError

_HEAD_WIDTH = 64


def save_random_base(component: Component, config: ModelConfig, folder: Path) -> None:
    """Write a frozen base with random weights in the hub's format: float32 at `tiny`, bfloat16 at `full`.

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
    if config.size == "tiny":
        with torch.device(device):
            return _TINY[component](config)
    if component not in _FULL:
        raise UserError(f"{component}: no random weights at full size; name the published one in `bases`")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return _FULL[component]()
    finally:
        torch.set_default_dtype(before)


def _tiny_language_model(config: ModelConfig) -> MistralForCausalLM:
    width = config.shot_encoder.width
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=MISTRAL_VOCABULARY,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=8192,
            sliding_window=None,
        )
    )


def _tiny_transformer(config: ModelConfig) -> CogVideoXTransformer3DModel:
    return CogVideoXTransformer3DModel(
        num_attention_heads=config.shot_encoder.width // _HEAD_WIDTH,
        attention_head_dim=_HEAD_WIDTH,
        num_layers=4,
        time_embed_dim=128,
        text_embed_dim=config.shot_encoder.text_width,
        sample_height=config.shot_decoder.height // 8,
        sample_width=config.shot_decoder.width // 8,
    )


def _tiny_autoencoder(config: ModelConfig) -> AutoencoderKLCogVideoX:
    """Autoencoder with equal, narrow widths and only the middle block, which learns fastest on a CPU."""
    return AutoencoderKLCogVideoX(
        block_out_channels=(24, 24, 24, 24),  # equal: there is no block that could change the width
        layers_per_block=0,
        norm_num_groups=4,
        sample_height=config.shot_decoder.height,
        sample_width=config.shot_decoder.width,
    )


def _tiny_text_encoder(config: ModelConfig) -> T5EncoderModel:
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


def _tiny_image_encoder(config: ModelConfig) -> CLIPVisionModel:
    shape = config.shot_encoder
    return CLIPVisionModel(
        CLIPVisionConfig(
            hidden_size=shape.image_width,
            intermediate_size=2 * shape.image_width,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=shape.image_pixels,
            patch_size=shape.image_patch,
        )
    )


def _full_language_model() -> MistralForCausalLM:
    # the other defaults are Mistral 7B v0.1's
    return MistralForCausalLM(MistralConfig(max_position_embeddings=32_768, rms_norm_eps=1e-5))


_TINY: dict[Component, Callable[[ModelConfig], Any]] = {
    "language_model": _tiny_language_model,
    "transformer": _tiny_transformer,
    "autoencoder": _tiny_autoencoder,
    "text_encoder": _tiny_text_encoder,
    "image_encoder": _tiny_image_encoder,
}
_FULL: dict[Component, Callable[[], Any]] = {
    "language_model": _full_language_model,
    "transformer": CogVideoXTransformer3DModel,
    "autoencoder": AutoencoderKLCogVideoX,
}
