"""Untrained checkpoints: small random bases for `tiny` and `mini`, the published bases by hub id for `full`.

All take the same steps: read the bases, wrap them, save the trainable parts. Adapters and the motion scope's embedding
start without effect on the output. A small base is saved in the hub's format and loaded by the code that loads the
published ones; one without adapters is itself the part to train.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from transformers import MistralForCausalLM

from models.bases import save_random_base
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
from models.config import Component, ModelConfig, inside_id
from models.game_model import GameModel, wrap_language_model
from models.hub import PUBLISHED, check_base, load_base, pinned
from models.shot_decoder import add_lora, load_transformer
from models.shot_encoder import ShotEncoder
from models.tokens import shipped_tokenizer

Say = Callable[[str], None]


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
        say: callback for progress messages, called with one line at a time.
        fitted: folders of bases that take the place of random ones.

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
    """Configuration with bases pinned to their commits: the two that are read now, and those that the user chose.

    It fetches their config.json. That the cache has it says later that they may be fetched.
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
