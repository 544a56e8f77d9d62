"""Tiny checkpoint for tests that need whole networks: random, in the real format, made once per test run."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from models.checkpoint import ADAPTER, DECODER_LORA
from models.config import inside_id, mini_config, tiny_config
from models.untrained import new_checkpoint
from models.weights import write_tensors
from tests.support.shared_folders import shared_folder


def tiny_checkpoint() -> Path:
    """Return an untrained tiny checkpoint, shared: copy it before changing it (`copy_of_tiny`)."""
    return shared_folder("tiny-checkpoint", lambda folder: new_checkpoint(folder, tiny_config(), seed=1))


def brief_checkpoint() -> Path:
    """Return the tiny checkpoint with smaller shots, 9 frames of 32x48: a turn takes 0.25 seconds instead of two."""
    tiny = tiny_config()
    shot = tiny.shot_decoder.model_copy(update={"frames": 9, "height": 32, "width": 48})
    config = tiny.replaced(shot_decoder=shot)
    return shared_folder("brief-checkpoint", lambda folder: new_checkpoint(folder, config, seed=1))


def mini_checkpoint() -> Path:
    """Return an untrained checkpoint of the size `mini`, shared: copy it before changing it."""
    return shared_folder("mini-checkpoint", lambda folder: new_checkpoint(folder, mini_config()))


def adapted_checkpoint() -> Path:
    """Return a tiny checkpoint with shots of 17 frames of 32x48, which looks as if it had been trained to the end."""

    def make(folder: Path) -> None:
        tiny = tiny_config()
        shot = tiny.shot_decoder.model_copy(update={"height": 32, "width": 48})
        new_checkpoint(folder, tiny.replaced(shot_decoder=shot), seed=1)
        generator = torch.Generator().manual_seed(2)
        for path in (folder / ADAPTER, folder / DECODER_LORA):
            with safe_open(path, "pt") as file:
                metadata = file.metadata()
            tensors = {
                name: tensor + 0.02 * torch.randn(tensor.shape, generator=generator) * ("lora_" in name)
                for name, tensor in load_file(path).items()
            }
            write_tensors(tensors, path, metadata)
        (folder / "trained.json").write_text('{"phases": [{"phase": "adapt", "step": 9, "steps": 9}]}')

    return shared_folder("adapted-checkpoint", make)


def copy_of_tiny(folder: Path) -> Path:
    """Return a copy of the shared checkpoint that may be changed."""
    return Path(shutil.copytree(tiny_checkpoint(), folder))


def change_image_encoder(checkpoint: Path) -> None:
    """Change the numbers of the image encoder inside a checkpoint."""
    path = checkpoint / inside_id("image_encoder") / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path)


def shake(module: nn.Module, seed: int = 0, by: float = 0.05) -> None:
    """Add small random numbers to every parameter, so that zero-initialised parts and swaps change the output."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter.dtype)
