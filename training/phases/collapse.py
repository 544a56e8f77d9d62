"""Signs of collapse in drawn clips: saturation, motion, frozen frames, frames of a single colour, mosaics.

Distilled networks fail in known ways: colours grow stronger, motion dies, a clip freezes, turns into one colour, or
falls into squares, the network's patches (reported of small batches). Each has a figure here. They mean something
beside the same figures of the teacher's clips.

Letters of the shapes: T frames, H and W pixels, C channels (RGB).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.shot_decoder import SPATIAL_COMPRESSION

_STILL = 0.1
"""Largest mean change of a frozen frame, in levels of 0 to 255."""
_PLAIN = 2.0
"""Largest standard deviation over a frame of a single colour, in the same levels."""
_PATCH = 2 * SPATIAL_COMPRESSION
"""Pixels of a patch's side: the shot decoder reads two by two latent pixels at once."""
SIGNS = ("saturation", "change", "frozen", "single_colour", "mosaic")


def signs_of(frames_THWC: Tensor) -> Tensor:
    """Return the `SIGNS` of a clip of uint8 frames, as a vector.

    - saturation: see `saturation`
    - change: mean absolute difference of a frame from the one before, in levels of 0 to 255
    - frozen: share of the frames that equal the one before
    - single_colour: share of the frames whose pixels are all alike
    - mosaic: mean difference of neighbouring pixels of two patches, over that of all neighbours: about 1 for none
    """
    levels_THWC = frames_THWC.float()
    change_T = (levels_THWC[1:] - levels_THWC[:-1]).abs().flatten(1).mean(dim=1)
    spread_T = levels_THWC.flatten(1, 2).std(dim=1).amax(dim=-1)
    shares = [(change_T <= _STILL).float().mean(), (spread_T <= _PLAIN).float().mean()]
    return torch.stack([saturation(frames_THWC), change_T.mean(), *shares, _mosaic(levels_THWC)])


def saturation(frames_THWC: Tensor) -> Tensor:
    """Return the mean over all pixels of (max - min) / max over the colours, 0 for black."""
    most_THW, least_THW = frames_THWC.amax(dim=-1).float(), frames_THWC.amin(dim=-1).float()
    return ((most_THW - least_THW) / most_THW.clamp(min=1)).mean()


def _mosaic(levels_THWC: Tensor) -> Tensor:
    steps_W = (levels_THWC[:, :, 1:] - levels_THWC[:, :, :-1]).abs().mean(dim=(0, 1, 3))
    steps_H = (levels_THWC[:, 1:] - levels_THWC[:, :-1]).abs().mean(dim=(0, 2, 3))
    edges = torch.cat([steps[_PATCH - 1 :: _PATCH] for steps in (steps_H, steps_W)]).mean()
    return edges / torch.cat([steps_H, steps_W]).mean().clamp(min=_STILL)


def compared(teachers: Sequence[Tensor], students: Sequence[Tensor]) -> dict[str, float]:
    """Return the mean signs of the student's clips, and with the suffix `_teacher` those of the teacher's."""
    found: dict[str, float] = {}
    for suffix, clips in (("", students), ("_teacher", teachers)):
        means = torch.stack([signs_of(clip) for clip in clips]).mean(dim=0).tolist()
        found |= {f"{sign}{suffix}": mean for sign, mean in zip(SIGNS, means, strict=True)}
    return found
