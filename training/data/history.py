"""Past of a training window: recorded shot tokens, with noise.

In play the past consists of the game model's own predictions, in plain training of recorded clips: errors that play
feeds back were never seen. Noise stands for them, as in GameNGen (arXiv 2408.14837, section 3.2.1), with s the shot
tokens of a past turn and A `history_noise`:

    a ~ U(0, A), one level per window;    s' = s + a std(s) eps,    eps ~ N(0, I)

As there, the network is given the level, in tenths of A, as a learned vector: it is added to every past shot token, and
that of the lowest tenth is zero. So play, which adds no noise, needs no vector, and checkpoints are as without noise.

Letters of the shapes: L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from training.data.feature_cache import FeatureCache
from training.data.order import Position, generator
from training.data.windows import Window

NOISE_LEVELS = 10
"""Tenths of the greatest noise; the number of the published work."""


@dataclass(frozen=True)
class Past:
    """Shot tokens of the past turns of one window."""

    shots: Mapping[str, Tensor]
    """Shot tokens [L, D] by clip id."""
    noise_level: int = 0
    """Tenth of the greatest noise, 0 to 9."""


@dataclass(frozen=True)
class History:
    """Settings of the past in training, with the seed of its random numbers."""

    noise: float = 0.0
    seed: int = 0

    def drawn(self, window: Window, cache: FeatureCache, place: Position) -> Past:
        """Return the past of a training window; its random numbers are functions of seed and position."""
        numbers = generator(self.seed, place)
        level = float(torch.rand((), generator=numbers))
        shots: dict[str, Tensor] = {}
        for turn in window.past:
            tokens_LD = cache.get("shot_tokens", turn.clip_id).float()
            if self.noise:
                noise_LD = torch.randn(tokens_LD.shape, generator=numbers)
                tokens_LD = tokens_LD + level * self.noise * tokens_LD.std() * noise_LD
            shots[turn.clip_id] = tokens_LD
        return Past(shots, int(level * NOISE_LEVELS) if self.noise else 0)


def recorded(window: Window, cache: FeatureCache) -> Past:
    """Return the past as it was recorded, for validation."""
    return Past({turn.clip_id: cache.get("shot_tokens", turn.clip_id).float() for turn in window.past})
