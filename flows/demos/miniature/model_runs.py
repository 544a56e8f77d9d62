"""Trainings of the miniature's model: the main one, and variants of it that the claims compare.

OUT/model              the main run
OUT/variants/NAME      a run with one change: another seed, or an ablation of the paper

All start from the fitted autoencoder and share the encoded clips, OUT/features. A seed is that of the examples' order,
of noise and of levels; the untrained weights are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

import training
from flows.demos.commands import run_command
from flows.demos.miniature.measured.measured_models import MAIN, VARIANTS
from pipeline.core.atomic import replacing

_LAUNCH = Path(training.__file__).parent / "launch" / "2-cpus-ddp.yaml"
_LOOPS = ("shot.warm_up", "shot.joint", "game.loop", "adapt.loop")
SEEDS: Mapping[str, int] = {"seed-1": 1, "seed-2": 2}
ABLATIONS = ("no-warm-up", "random-frame")
"""`no-adaptation` needs no run: it is the main one before its last phase. `no-motion-scope` and other shot encoders do
not start from the fitted checkpoint, whose networks are others."""


def train_model(out: Path) -> None:
    """Train shots, game and adaptation, on two processes if there is no GPU."""
    _train(out, out / MAIN)


def train_variants(out: Path) -> None:
    """Train the variants one after another; finished ones are skipped."""
    for name, seed in SEEDS.items():
        folder = out / VARIANTS / name
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "seed.toml") as part:
            part.write_text("".join(f"[{loop}]\nseed = {seed}\n" for loop in _LOOPS), encoding="utf-8")
        _train(out, folder, "--config", folder / "seed.toml")
    for name in ABLATIONS:
        _train(out, out / VARIANTS / name, "--ablation", name)


def _train(out: Path, folder: Path, *options: str | Path) -> None:
    run_command(
        "miniature", "train", "all", "--recipe", "mini", "--data", out / "dataset",
        "--from", out / "autoencoder" / "clips" / "result", "--out", folder, "--features", out / "features", *options,
        *(() if torch.accelerator.is_available() else ("--accelerate", _LAUNCH)),
    )  # fmt: skip
