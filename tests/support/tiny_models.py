"""A tiny checkpoint for tests that need whole networks: random, in the real format, made once in a test run."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import nn

from models.config import tiny_config
from models.untrained import new_checkpoint
from tests.support.shared_folders import shared_folder


def tiny_checkpoint() -> Path:
    """An untrained tiny checkpoint, shared: copy it before changing it (`shutil.copytree`)."""
    return shared_folder("tiny-checkpoint", lambda folder: new_checkpoint(folder, tiny_config(), seed=1))


def brief_checkpoint() -> Path:
    """The tiny checkpoint with smaller shots, 9 frames of 32x48: a turn takes a quarter of a second, not two."""
    tiny = tiny_config()
    shot = tiny.shot_decoder.model_copy(update={"frames": 9, "height": 32, "width": 48})
    config = tiny.replaced(shot_decoder=shot)
    return shared_folder("brief-checkpoint", lambda folder: new_checkpoint(folder, config, seed=1))


def copy_of_tiny(folder: Path) -> Path:
    """A copy of the shared checkpoint to change."""
    return Path(shutil.copytree(tiny_checkpoint(), folder))


def shake(module: nn.Module, seed: int = 0, by: float = 0.05) -> None:
    """Move every parameter a little at random, so that zero-initialised parts count and a swap shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter.dtype)
