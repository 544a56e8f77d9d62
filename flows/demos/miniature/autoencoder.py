"""Autoencoder step: untrained checkpoint of size mini, and its autoencoder fitted to the world's clips.

OUT/start                       the untrained checkpoint
OUT/autoencoder/clips/result    the same with the fitted autoencoder
OUT/autoencoder/curve.jsonl     its learning curve: PSNR of whole held-out clips over CPU seconds
OUT/autoencoder/measured.json   see reconstructions.py
"""

from __future__ import annotations

from pathlib import Path

from flows.console.terminal import say
from flows.demos.miniature.learning_curve import LearningCurve
from flows.demos.miniature.reconstructions import measure_reconstructions
from models.checkpoint import Checkpoint
from models.config import mini_config
from models.untrained import new_checkpoint
from pipeline.core.atomic import write_json
from training.config import FitSettings
from training.phases.autoencoder import fit_autoencoder
from training.recipes import mini


def train_autoencoder(out: Path, settings: FitSettings | None = None) -> Path:
    """Fit the autoencoder. Return the folder of the checkpoint."""
    folder, settings = out / "autoencoder", settings or mini().autoencoder
    fitted = fit_autoencoder(start_of(out), out / "dataset", folder, settings, LearningCurve(folder / "curve.jsonl"))
    if not (folder / "measured.json").exists():
        found = measure_reconstructions(out, fitted.checkpoint)
        write_json(folder / "measured.json", found)
        for name, each in found.items():
            say(f"autoencoder, {name}: {each['psnr']:.1f} dB; the judge names {each['named']:.1%} as the originals")
    return fitted.checkpoint.folder


def start_of(out: Path) -> Checkpoint:
    """Return the untrained checkpoint, written by the first call."""
    start = out / "start"
    return Checkpoint.open(start) if start.exists() else new_checkpoint(start, mini_config())
