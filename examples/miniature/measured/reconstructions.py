"""Reconstructions of the world's clips by the fitted autoencoder: how near they are, and whether the judge agrees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.miniature.measured.judge_network import LABELS, Judge
from models.checkpoint import Checkpoint
from pipeline.publish.samples import Split
from training.phases.autoencoder import psnr, read_frames, reconstructed

SETS: tuple[tuple[str, str, Split], ...] = (("val", "dataset", "val"), ("unseen", "unseen", "val"))
"""Name, data set and split of the clips measured."""


def measure_reconstructions(out: Path, checkpoint: Checkpoint, judge: Judge) -> Mapping[str, Mapping[str, Any]]:
    """Return by data set the PSNR in dB, and the shares of clips of which a field is named as in the original.

    `named` is the share of those of which all fields are.
    """
    autoencoder = checkpoint.autoencoder()
    found: dict[str, dict[str, Any]] = {}
    for name, data, split in SETS:
        clips_NTHWC = read_frames(out / data, split, checkpoint.config, most=10_000)
        back_NTHWC = reconstructed(autoencoder, clips_NTHWC)
        pairs = list(zip(judge.name(clips_NTHWC), judge.name(back_NTHWC), strict=True))
        alike: dict[str, float] = {
            field: sum(getattr(a, field) == getattr(b, field) for a, b in pairs) / len(pairs) for field in LABELS
        }
        found[name] = {
            "clips": len(clips_NTHWC),
            "psnr": float(psnr(clips_NTHWC, back_NTHWC).mean()),
            "named": sum(a == b for a, b in pairs) / len(pairs),
            **alike,
        }
    return found
