"""Sharpness: PSNR of reconstructions where the clips stand still and where they move, and measures of drawn frames.

OUT/sharpness.json    mean PSNR in dB of held-out clips, whole, still and moving, by the autoencoder of the package and
                      by those of OUT, all at the size of the clips

A pixel moves where the true optical flow is above 0.2 px a frame: the drawn world knows it (`true_motion.py`).

Letters of the shapes: N clips, T frames, H W pixels, C colours (RGB).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from examples.miniature.dataset import CONFIG
from examples.miniature.encoders import FITTED
from examples.miniature.true_motion import moving_in_clips
from flows.console.terminal import say
from models.checkpoint import Checkpoint
from models.shipped import shipped
from pipeline.core.atomic import write_json
from training.data.order import spread
from training.data.shards import open_shards
from training.data.turns import read_turns
from training.phases.autoencoder import reconstructed

_CLIPS = 64
_LEAST_ERROR = 1 / 12
"""Squared error of rounding to whole numbers."""


def measure_sharpness(out: Path, most: int = _CLIPS) -> dict[str, dict[str, float]]:
    """Measure the autoencoders on held-out clips, write the figures and return them by autoencoder."""
    turns = list(read_turns(open_shards(out / "dataset", "val")))
    chosen, clips = [turns[item] for item in spread(len(turns), most)], CONFIG.clips
    frames_NTHWC = torch.stack([turn.frames(clips.height, clips.width, clips.frames) for turn in chosen])
    masks = moving_in_clips(out, "dataset", [turn.clip_id for turn in chosen])
    moving_NTHW = torch.from_numpy(np.stack(list(masks)))
    found = {}
    for name, checkpoint in _checkpoints(out).items():
        back_NTHWC = reconstructed(checkpoint.autoencoder(), frames_NTHWC)
        found[name] = decibels(frames_NTHWC, back_NTHWC, moving_NTHW)
        said = ", ".join(f"{part} {value:.1f} dB" for part, value in found[name].items())
        say(f"sharpness, autoencoder of {name}: {said}")
    write_json(out / "sharpness.json", {"clips": len(chosen), "moving": float(moving_NTHW.float().mean()), **found})
    return found


def _checkpoints(out: Path) -> dict[str, Checkpoint]:
    fits = {"the first fit": Path("autoencoder", "clips", "result"), "the whole fit": FITTED}
    here = {name: Checkpoint.open(out / result) for name, result in fits.items() if (out / result).exists()}
    return {"the package": shipped(), **here}


def decibels(frames_NTHWC: Tensor, others_NTHWC: Tensor, moving_NTHW: Tensor) -> dict[str, float]:
    """Return the mean PSNR of clips in dB: of all pixels, of those that stand still, and of those that move."""
    squared_NTHW = (frames_NTHWC.float() - others_NTHWC.float()).square().mean(dim=-1)
    parts: Mapping[str, Tensor] = {
        "all": torch.ones_like(moving_NTHW),
        "still": ~moving_NTHW,
        "moving": moving_NTHW,
    }
    found = {}
    for part, mask_NTHW in parts.items():
        errors = [float(each[mask].mean()) for each, mask in zip(squared_NTHW, mask_NTHW, strict=True) if mask.any()]
        found[part] = fmean(10 * np.log10(255**2 / max(error, _LEAST_ERROR)) for error in errors)
    return found


def edge_strength(frames_THWC: NDArray[np.uint8]) -> float:
    """Return the mean slope of the luma of RGB frames, 0 to 255 per pixel: blurred frames have less."""
    luma = [cv2.cvtColor(frame_HWC, cv2.COLOR_RGB2GRAY).astype(np.float32) for frame_HWC in frames_THWC]
    return fmean(float(np.hypot(*np.gradient(luma_HW)).mean()) for luma_HW in luma)
