"""Autoencoder step: the autoencoder of size mini, fitted to the world's clips.

OUT/autoencoder/clips/result    checkpoint with the trained image encoder and the fitted autoencoder
OUT/autoencoder/curve.jsonl     its learning curve: PSNR of whole held-out clips over CPU seconds
"""

from __future__ import annotations

from pathlib import Path

from examples.miniature.learning_curve import LearningCurve
from flows.console.terminal import say
from models.checkpoint import Checkpoint
from training.config import FitSettings
from training.phases.autoencoder import fit_autoencoder
from training.recipes import mini


def train_autoencoder(out: Path, settings: FitSettings | None = None) -> Path:
    """Fit the autoencoder. Return the folder of the checkpoint."""
    folder, settings = out / "autoencoder", settings or mini().autoencoder
    start, curve = Checkpoint.open(out / "image_encoder" / "result"), LearningCurve(folder / "curve.jsonl")
    fitted = fit_autoencoder(start, out / "dataset", folder, settings, curve)
    say("autoencoder: " + ", ".join(f"{split} {decibels:.1f} dB" for split, decibels in fitted.after.items()))
    return fitted.checkpoint.folder
