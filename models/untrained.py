"""Untrained checkpoints, and their bases with random weights.

All sizes take the same steps: read the bases, wrap them, save the trainable parts. Adapters and the motion scope's
embedding start without effect on the output. `tiny` and `mini` have small random bases in the hub's format, which load
like the published bases. A base without adapters is itself trained. `full` has the published bases by hub id. Random
bases at full size serve to measure speed and memory only.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
from transformers import CLIPVisionConfig, CLIPVisionModel, MistralConfig, MistralForCausalLM, T5Config, T5EncoderModel

from models.checkpoint import TOKENIZER, Checkpoint
from models.checkpoint_writer import (
    link_or_copy,
    save_config,
    save_game_model,
    save_resamplers,
    save_shot_decoder,
    save_shot_encoder,
    writing,
)
from models.config import Component, ModelConfig, Size, inside_id
from models.game_model import GameModel, wrap_language_model
from models.hub import PUBLISHED, check_base, load_base, pinned, quietly
from models.shot_decoder import SPATIAL_COMPRESSION, ShotDecoder, add_lora, decoder_options, load_transformer
from models.shot_encoder import ShotEncoder
from models.tokens import MISTRAL_VOCABULARY, VOCABULARY, shipped_tokenizer
from pipeline.core.errors import UserError

Say = Callable[[str], None]
_HEAD_WIDTH = 64


def new_checkpoint(
    folder: Path,
    config: ModelConfig,
    seed: int = 0,
    say: Say = lambda _: None,
    fitted: Mapping[Component, Path] | None = None,
) -> Checkpoint:
    """Write an untrained checkpoint.

    Args:
        folder: of the checkpoint; must not exist, or be empty.
        config: its configuration; bases with id `bases/NAME` are created at random, others are loaded.
        seed: of all random weights; the same seed writes the same checkpoint.
        fitted: folders of bases that replace random ones.

    Raises:
        UserError: the folder is not empty, or a base cannot be loaded.
    """
    for component, base in config.bases.items():
        if Path(base.id).is_absolute():  # others are inside, or fetched when training first needs them
            check_base(component, base)
    config = _pinned(config)
    with writing(folder) as part, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        shipped_tokenizer().save_pretrained(str(part / TOKENIZER))
        for component, base in config.bases.items():
            if fitted and component in fitted:
                shutil.copytree(fitted[component], part / base.id, copy_function=link_or_copy)
            elif base.id == inside_id(component):
                say(f"{component}: random")
                save_random_base(component, config, part / base.id)
        checkpoint = Checkpoint(part, config)
        _save_game_model(checkpoint, say)
        _save_shot_networks(checkpoint, say)
        save_config(part, config)
    return Checkpoint(folder, config)


def _pinned(config: ModelConfig) -> ModelConfig:
    """Configuration with the bases that are read now, and the bases that the user chose, pinned to their commits.

    This fetches their config.json into the hub's cache, which later allows fetching these bases.
    """
    chosen = {name: base for name, base in config.bases.items() if base.id != inside_id(name)}
    read = {name for name, base in chosen.items() if base.id not in PUBLISHED} | {"language_model", "transformer"}
    external = {name: pinned(base, "--base") for name, base in chosen.items() if name in read}
    return config.replaced(bases={**config.bases, **external})


def _save_game_model(checkpoint: Checkpoint, say: Say) -> None:
    config = checkpoint.config
    say(f"game model: adapters for {config.bases['language_model'].id}")
    location, precision = checkpoint.base("language_model"), _precision(config, torch.bfloat16)
    base = load_base("language_model", MistralForCausalLM, location, precision)
    model = GameModel(wrap_language_model(base, config.game_model), config)
    if "language_model" in config.whole:
        save_resamplers(checkpoint.folder, model.state_dict())  # its base is there already
    else:
        save_game_model(checkpoint.folder, model)


def _save_shot_networks(checkpoint: Checkpoint, say: Say) -> None:
    config = checkpoint.config
    say(f"shot encoder, and shot decoder: adapters for {config.bases['transformer'].id}")
    save_shot_encoder(checkpoint.folder, ShotEncoder(config.shot_encoder).state_dict())
    if "transformer" in config.whole:
        return
    decoder = load_transformer(config, checkpoint.base("transformer"), _precision(config, torch.float16))
    add_lora(decoder, config.shot_decoder)
    save_shot_decoder(checkpoint.folder, decoder)


def _precision(config: ModelConfig, full: torch.dtype) -> torch.dtype:
    return full if config.size == "full" else torch.float32


def save_random_base(component: Component, config: ModelConfig, folder: Path) -> None:
    """Write a frozen base with random weights in the hub's format: bfloat16 at `full`, else float32.

    Raises:
        UserError: at `full`, a base that play does not need.
    """
    # at full size 7e9 random numbers, slow on a CPU
    device = "cuda" if torch.cuda.is_available() and config.size == "full" else "cpu"
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
        raise UserError(f"{component} has no random weights at full size; name the published one in `bases`")
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
    time_width: int
    """Width of the transformer's embedding of the timestep, which modulates every block."""
    channels: tuple[int, ...]
    """Widths of the autoencoder's levels, from pixels to latents. With fewer than four levels it takes patches."""
    blocks: int
    """Residual blocks of a level of the autoencoder's encoder; its decoder has one more."""
    groups: int
    rotary: bool = False
    """Rotary positions in the transformer, as in CogVideoX 5B, instead of the table of the 2B."""


_SHAPES: Mapping[Size, _Shape] = {
    # Equal widths, because without blocks nothing changes the width. The middle block alone learns fast on a CPU.
    "tiny": _Shape(layers=4, image_layers=3, time_width=128, channels=(24, 24, 24, 24), blocks=0, groups=4),
    "mini": _Shape(layers=6, image_layers=4, time_width=64, channels=(64, 64, 64), blocks=0, groups=8, rotary=True),
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
    """Stock transformer to wrap, or a shot decoder if it is trained whole."""
    whole = "transformer" in config.whole
    sizes = {
        "num_attention_heads": config.shot_encoder.width // _HEAD_WIDTH,
        "attention_head_dim": _HEAD_WIDTH,
        "num_layers": shape.layers,
        "time_embed_dim": shape.time_width,
        "use_rotary_positional_embeddings": shape.rotary,
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
