"""Crops of clips: single frames or nine consecutive ones, or parts of them, for the autoencoder fit.

The autoencoder's norms are over a whole crop. They see other statistics in a part of a frame than in a whole one, in
which it is used, so parts are only for a cheap and coarse fit.

Letters of the shapes: N clips, B batch, T frames or latent frames, H W pixels or latent pixels, C channels (RGB).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from training.data.order import Position, generator

Kind = Literal["stills", "clips"]
_PATCH = 8
"""Pixels per latent pixel along each side."""
_CROP_FRAMES = 9
"""Frames of a crop of a clip: the first alone and two groups of four, about half the cost of a whole clip."""


@dataclass(frozen=True, eq=False)
class Crops:
    """Collated examples: crops of clips, and the noise for sampling their latents."""

    frames_BTHWC: Tensor
    """uint8 RGB."""
    noise_BCTHW: Tensor

    def to(self, device: torch.device) -> Self:
        """Return the batch on a device."""
        return type(self)(self.frames_BTHWC.to(device), self.noise_BCTHW.to(device))


class CropExamples:
    """Random crops of clips: single frames, or nine consecutive frames."""

    def __init__(self, frames_NTHWC: Tensor, kind: Kind, channels: int, crop: float = 0.5, seed: int = 0) -> None:
        """Store the clips; `channels` of latents, `crop` the share of height and width."""
        self.frames_NTHWC, self.kind, self.channels, self.crop, self.seed = frames_NTHWC, kind, channels, crop, seed

    def __len__(self) -> int:
        return len(self.frames_NTHWC)

    def __getitem__(self, place: Position) -> tuple[Tensor, Tensor]:
        """Return frames [T, H, W, C] and noise [C, T, H, W]."""
        drawn = generator(self.seed, place)
        clip_THWC = self.frames_NTHWC[place.item]
        frames, height, width, _ = clip_THWC.shape
        length = 1 if self.kind == "stills" else _CROP_FRAMES
        first = int(torch.randint(frames - length + 1, (), generator=drawn))
        clip_THWC = clip_THWC[first : first + length]
        rows, columns = (max(1, int(side * self.crop) // _PATCH) * _PATCH for side in (height, width))
        top, left = (
            int(torch.randint(most + 1, (), generator=drawn)) for most in (height - rows, width - columns)
        )  # fmt: skip
        latent_frames = (length - 1) // 4 + 1
        shape = (self.channels, latent_frames, rows // _PATCH, columns // _PATCH)
        return clip_THWC[:, top : top + rows, left : left + columns], torch.randn(shape, generator=drawn)
