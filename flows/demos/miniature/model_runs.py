"""Trainings of the miniature's model: the main one, and variants of it that the claims compare.

OUT/model              the main run
OUT/variants/NAME      a run with one change: another seed, or an ablation of the paper
OUT/starts/NAME        checkpoint that an ablation of a network starts from: the fitted one's bases, but a new shot
                       decoder and shot encoder of the ablation's kind

All start from the fitted autoencoder and share the encoded clips, OUT/features. A seed is that of the examples' order,
of noise and of levels; the untrained weights of all seeds are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

import training
from flows.demos.commands import run_command
from flows.demos.miniature.dataset import MORE
from flows.demos.miniature.measured.measured_models import FITTED, MAIN, VARIANTS
from models.checkpoint import Checkpoint
from models.config import Component
from models.untrained import new_checkpoint
from pipeline.core.atomic import replacing
from training.recipes import read_recipe

_LAUNCH = Path(training.__file__).parent / "launch" / "2-cpus-ddp.yaml"
_LOOPS = ("shot.warm_up", "shot.joint", "game.loop", "adapt.loop")
SEEDS: Mapping[str, int] = {"seed-1": 1, "seed-2": 2}
ABLATIONS = ("no-motion-scope", "no-warm-up", "random-frame", "linear", "addition", "cross-attention")
"""`no-adaptation` needs no run: it is the main one before its last phase."""
_KEPT: tuple[Component, ...] = ("language_model", "autoencoder", "text_encoder", "image_encoder")


def train_model(out: Path) -> None:
    """Train shots, game and adaptation, on two processes if there is no GPU."""
    _train(out, out / FITTED, out / MAIN)


def train_variants(out: Path) -> None:
    """Train the variants one after another; finished ones are skipped."""
    for name, seed in SEEDS.items():
        folder = out / VARIANTS / name
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "seed.toml") as part:
            part.write_text("".join(f"[{loop}]\nseed = {seed}\n" for loop in _LOOPS), encoding="utf-8")
        _train(out, out / FITTED, folder, "--config", folder / "seed.toml")
    for name in ABLATIONS:
        _train(out, start_of(out, name), out / VARIANTS / name, "--ablation", name)


def start_of(out: Path, ablation: str) -> Path:
    """Return the checkpoint that an ablation starts from; it is written if the ablation changes a network."""
    fitted = Checkpoint.open(out / FITTED)
    config = read_recipe("mini", ablation).model
    if all(getattr(config, part) == getattr(fitted.config, part) for part in ("shot_encoder", "shot_decoder")):
        return fitted.folder
    folder = out / "starts" / ablation
    if not folder.exists():
        new_checkpoint(folder, config, fitted={component: Path(fitted.base(component).id) for component in _KEPT})
    return folder


def _train(out: Path, start: Path, folder: Path, *options: str | Path) -> None:
    run_command(
        "miniature", "train", "all", "--recipe", "mini", "--data", out / "dataset", "--data", out / MORE,
        "--from", start, "--out", folder, "--features", out / "features", *options,
        *(() if torch.accelerator.is_available() else ("--accelerate", _LAUNCH)),
    )  # fmt: skip
