"""Consistent self-attention: the pictures of a story attend to each other during sampling (StoryDiffusion,
arXiv 2405.01434). Training-free.

In the self-attention of the U-Net's upward half, picture i attends to all of its tokens X_i, and to a random sample S_j
of the tokens of each other picture j:

    X_i <- Attention(queries X_i, keys and values [X_i, S_j for j != i])

New token positions are sampled for every layer and step. As published, half of the tokens are sampled and the first
tenth of the steps, which decides the layout, is unchanged. The published program also disables single layers at random;
this is left out.

A story that does not fit in memory is generated in windows. Each window begins with the first pictures of the story,
the anchors. Anchors attend to anchors only, so they are identical in every window and need not be stored. For the same
reason each picture samples its token positions from a separate generator: its random numbers do not depend on its
window.

Letters of the shapes: B batch, N pictures, G guidance halves (B = G N, as diffusers has them), L tokens of a picture,
S sampled ones, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention, AttnProcessor2_0
from torch import Tensor

from models.turns import turn_seed


class PictureGroup:
    """Group of pictures generated together: which ones attend to each other, from which step, and to which tokens.

    Args:
        pictures: numbers of the pictures in the story.
        anchors: number of leading pictures that attend only to each other; with 0, all attend to all.
        sampled: share of a picture's tokens that the others attend to.
        begin: step from which pictures attend to each other, 0 for the first.
        seed: seed of the token sampling.
    """

    def __init__(self, pictures: Sequence[int], *, anchors: int, sampled: float, begin: int, seed: int) -> None:
        self.pictures, self.sampled, self.begin = tuple(pictures), sampled, begin
        self.active = begin == 0
        indices = range(len(pictures))
        self.others = [[n for n in (indices[:anchors] if me < anchors else indices) if n != me] for me in indices]
        """Batch indices of the pictures that each picture attends to."""
        # branch 1: branch 0 seeds the noise of a picture
        self._positions = [torch.Generator().manual_seed(turn_seed(seed, number, 1)) for number in pictures]

    def after_step(self, _pipeline: object, step: int, _timestep: object, tensors: dict[str, Any]) -> dict[str, Any]:
        """Activate the group at its first step; the pipeline's `callback_on_step_end`."""
        self.active = step + 1 >= self.begin
        return tensors

    def seen(self, states_BLD: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return for each picture its own tokens [G, L, D], and the tokens it attends to [G, L + S others, D].

        Both guidance halves use the same token positions, each within its half.

        Raises:
            ValueError: the batch size is not a multiple of the number of pictures.
        """
        count = len(self.pictures)
        if len(states_BLD) % count:
            raise ValueError(f"a batch of {len(states_BLD)} does not consist of {count} pictures: generate one of each")
        states_GNLD = states_BLD.view(-1, count, *states_BLD.shape[1:])
        samples = [self._sample(states_GNLD[:, picture], picture) for picture in range(count)]
        return [
            (states_GNLD[:, me], torch.cat([states_GNLD[:, me], *(samples[other] for other in others)], dim=1))
            for me, others in enumerate(self.others)
        ]

    def _sample(self, states_GLD: Tensor, picture: int) -> Tensor:
        tokens = states_GLD.shape[1]
        positions = torch.randperm(tokens, generator=self._positions[picture])[: round(self.sampled * tokens)]
        return states_GLD[:, positions.to(states_GLD.device)]


class ConsistentAttention(AttnProcessor2_0):  # type: ignore[misc]
    """Attention processor of diffusers, run once per picture over the tokens that its group allows."""

    def __init__(self, window: PictureGroup) -> None:
        super().__init__()
        self.window = window

    def __call__(self, attn: Attention, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output [B, L, D]."""
        if not self.window.active:
            return super().__call__(attn, hidden_states, *args, **kwargs)  # type: ignore[no-any-return]
        # one by one needs no mask: the fast kernels do not support masks
        drawn = [AttnProcessor2_0.__call__(self, attn, own, seen) for own, seen in self.window.seen(hidden_states)]
        return torch.stack(drawn, dim=1).flatten(0, 1)


@contextmanager
def drawn_together(unet: UNet2DConditionModel, window: PictureGroup) -> Iterator[None]:
    """Install consistent self-attention in the upward half of the U-Net; restore it afterwards."""
    before = dict(unet.attn_processors)
    consistent = {name: ConsistentAttention(window) for name in before if is_consistent(name)}
    unet.set_attn_processor({**before, **consistent})
    try:
        yield
    finally:
        unet.set_attn_processor(before)


def is_consistent(name: str) -> bool:
    """Return True if the attention layer of this processor name uses consistent self-attention."""
    return name.startswith("up_blocks.") and ".attn1." in name


def windows(count: int, together: int, anchors: int) -> list[tuple[int, ...]]:
    """Split the pictures of a story, from 0, into windows of at most `together`; later ones begin with the anchors."""
    first, new = tuple(range(min(count, together))), together - anchors
    rest = [range(start, min(start + new, count)) for start in range(together, count, new)]
    return [first, *((*range(anchors), *pictures) for pictures in rest)]
