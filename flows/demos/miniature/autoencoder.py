"""Autoencoder step: the autoencoder of size mini, fitted to the world's clips.

OUT/autoencoder/clips/result    checkpoint with the fitted autoencoder and the trained image encoder
OUT/autoencoder/curve.jsonl     its learning curve: PSNR of whole held-out clips over CPU seconds
"""

from __future__ import annotations

from pathlib import Path

from flows.console.terminal import say
from flows.demos.miniature.learning_curve import LearningCurve
from models.checkpoint import Checkpoint
from training.config import FitSettings
from training.phases.autoencoder import fit_autoencoder
from training.recipes import mini


def train_autoencoder(out: Path, settings: FitSettings | None = None) -> Path:
    """Fit the autoencoder. Return the folder of the checkpoint."""
    start, folder = Checkpoint.open(out / "image_encoder" / "result"), out / "autoencoder"
    settings = settings or mini().autoencoder
    fitted = fit_autoencoder(start, out / "dataset", folder, settings, LearningCurve(folder / "curve.jsonl"))
    for split, after in fitted.after.items():
        say(f"autoencoder: clips of {split} reconstructed with {after:.1f} dB, {fitted.before[split]:.1f} before")
    return fitted.checkpoint.folder
