"""Autoencoder step: the autoencoder of size mini, fitted to the world's clips.

OUT/autoencoder/clips/result    checkpoint with the trained image encoder and the fitted autoencoder
OUT/autoencoder/curve.jsonl     its learning curve: PSNR of whole held-out clips over CPU seconds
OUT/autoencoder/measured.json   see reconstructions.py
"""

from __future__ import annotations

from pathlib import Path

from flows.console.terminal import say
from flows.demos.miniature.learning_curve import LearningCurve
from flows.demos.miniature.reconstructions import measure_reconstructions
from models.checkpoint import Checkpoint
from pipeline.core.atomic import write_json
from training.config import FitSettings
from training.phases.autoencoder import fit_autoencoder
from training.recipes import mini


def train_autoencoder(out: Path, settings: FitSettings | None = None) -> Path:
    """Fit the autoencoder. Return the folder of the checkpoint."""
    folder, settings = out / "autoencoder", settings or mini().autoencoder
    start, curve = Checkpoint.open(out / "image_encoder" / "result"), LearningCurve(folder / "curve.jsonl")
    fitted = fit_autoencoder(start, out / "dataset", folder, settings, curve)
    if not (folder / "measured.json").exists():
        found = measure_reconstructions(out, fitted.checkpoint)
        write_json(folder / "measured.json", found)
        for name, each in found.items():
            say(f"autoencoder, {name}: {each['psnr']:.1f} dB; the judge names {each['named']:.1%} as the originals")
    return fitted.checkpoint.folder
