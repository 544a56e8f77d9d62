"""Signs of collapse in drawn clips: saturation, motion, frozen frames, frames of a single colour.

Distilled networks fail in known ways: colours grow stronger, motion dies, a clip freezes or turns into one colour. Each
has a figure here. They mean something beside the same figures of the teacher's clips.

Letters of the shapes: T frames, H and W pixels, C channels (RGB).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_STILL = 0.1
"""Largest mean change of a frozen frame, in levels of 0 to 255."""
_PLAIN = 2.0
"""Largest standard deviation over a frame of a single colour, in the same levels."""
SIGNS = ("saturation", "change", "frozen", "single_colour")


def signs_of(frames_THWC: Tensor) -> Tensor:
    """Return the `SIGNS` of a clip of uint8 frames, as a vector.

    - saturation: mean over all pixels of (max - min) / max over the colours, 0 for black
    - change: mean absolute difference of a frame from the one before, in levels of 0 to 255
    - frozen: share of the frames that equal the one before
    - single_colour: share of the frames whose pixels are all alike
    """
    levels_THWC = frames_THWC.float()
    most_THW, least_THW = levels_THWC.amax(dim=-1), levels_THWC.amin(dim=-1)
    saturation = ((most_THW - least_THW) / most_THW.clamp(min=1)).mean()
    change_T = (levels_THWC[1:] - levels_THWC[:-1]).abs().flatten(1).mean(dim=1)
    spread_T = levels_THWC.flatten(1, 2).std(dim=1).amax(dim=-1)
    shares = [(change_T <= _STILL).float().mean(), (spread_T <= _PLAIN).float().mean()]
    return torch.stack([saturation, change_T.mean(), *shares])


def compared(teachers: Sequence[Tensor], students: Sequence[Tensor]) -> dict[str, float]:
    """Return the mean signs of the student's clips, and with the suffix `_teacher` those of the teacher's."""
    found: dict[str, float] = {}
    for suffix, clips in (("", students), ("_teacher", teachers)):
        means = torch.stack([signs_of(clip) for clip in clips]).mean(dim=0).tolist()
        found |= {f"{sign}{suffix}": mean for sign, mean in zip(SIGNS, means, strict=True)}
    return found
