"""Conditions of a shot decoder in distillation, which several networks take alike.

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, L shot tokens, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from models.diffusion import clean
from models.shot_decoder import ShotDecoder, denoise


@dataclass(frozen=True, eq=False)
class Condition:
    """Conditions of a shot decoder, each as in `denoise`."""

    tokens_BLD: Tensor
    scope_B: Tensor | None
    before_BCHW: Tensor | None

    def velocity(self, decoder: ShotDecoder, noised_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
        """Return the velocity that a decoder predicts, [B, T, C, H, W]."""
        return denoise(decoder, noised_BTCHW, self.tokens_BLD, timesteps_B, self.scope_B, self.before_BCHW)

    def clean(self, decoder: ShotDecoder, noised_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
        """Return the clean latents that a decoder predicts, [B, T, C, H, W]."""
        return clean(noised_BTCHW, self.velocity(decoder, noised_BTCHW, timesteps_B), timesteps_B)

    def guided(self, unconditional_LD: Tensor) -> Condition:
        """Return the condition of both halves of guidance, without the shot tokens first."""
        both_BLD = torch.cat([unconditional_LD.expand_as(self.tokens_BLD), self.tokens_BLD])
        scope_B = None if self.scope_B is None else self.scope_B.repeat(2)
        return Condition(both_BLD, scope_B, None if self.before_BCHW is None else self.before_BCHW.repeat(2, 1, 1, 1))
