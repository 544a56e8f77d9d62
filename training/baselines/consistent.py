"""Consistent self-attention: the pictures of a story look at each other while they are drawn (StoryDiffusion,
arXiv 2405.01434). Nothing is trained.

In the self-attention of the U-Net's upward half, a picture attends to all of its own tokens and to a random sample of
the tokens of the other pictures; new places are drawn for every layer and step. As published, half of the tokens are
sampled and the first tenth of the steps is left alone, where the layout is decided. Left out is the published program's
habit of switching single layers off at random.

A story that does not fit in memory is drawn in windows. Each begins with the first pictures of the story, its anchors.
Then anchors see anchors only, so they come out the same in every window and need not be remembered. A picture's places
are drawn from its own generator for the same reason: what is random about it does not depend on who is drawn with it.

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
    """Pictures that are drawn together, while they are drawn: who sees whom, since when, and which tokens.

    Args:
        pictures: their numbers in the story.
        anchors: how many of them, the first ones, see only each other; 0: everyone sees everyone.
        sampled: share of a picture's tokens that the others see.
        begin: step from which on they see each other, 0 for the first.
        seed: of the story's sampling.
    """

    def __init__(self, pictures: Sequence[int], *, anchors: int, sampled: float, begin: int, seed: int) -> None:
        self.pictures, self.sampled, self.begin = tuple(pictures), sampled, begin
        self.active = begin == 0
        everyone = range(len(pictures))
        self.others = [[n for n in (everyone[:anchors] if me < anchors else everyone) if n != me] for me in everyone]
        """For each picture the places in the batch of those it sees."""
        # branch 1: the noise of a picture is drawn from branch 0
        self._places = [torch.Generator().manual_seed(turn_seed(seed, number, 1)) for number in pictures]

    def after_step(self, _pipeline: object, step: int, _timestep: object, tensors: dict[str, Any]) -> dict[str, Any]:
        """To be given to the pipeline as `callback_on_step_end`."""
        self.active = step + 1 >= self.begin
        return tensors

    def seen(self, states_BLD: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each picture its own tokens [G, L, D], and all that it attends to [G, L + S others, D].

        Both halves of guidance see tokens at the same places, each of its own half.

        Raises:
            ValueError: the batch is not made of these pictures.
        """
        count = len(self.pictures)
        if len(states_BLD) % count:
            raise ValueError(f"a batch of {len(states_BLD)} does not consist of {count} pictures: draw one of each")
        states_GNLD = states_BLD.view(-1, count, *states_BLD.shape[1:])
        samples = [self._sample(states_GNLD[:, picture], picture) for picture in range(count)]
        return [
            (states_GNLD[:, me], torch.cat([states_GNLD[:, me], *(samples[other] for other in others)], dim=1))
            for me, others in enumerate(self.others)
        ]

    def _sample(self, states_GLD: Tensor, picture: int) -> Tensor:
        tokens = states_GLD.shape[1]
        places = torch.randperm(tokens, generator=self._places[picture])[: round(self.sampled * tokens)]
        return states_GLD[:, places.to(states_GLD.device)]


class ConsistentAttention(AttnProcessor2_0):  # type: ignore[misc]
    """diffusers' own attention, once for each picture, over the tokens that a window lets it see."""

    def __init__(self, window: PictureGroup) -> None:
        super().__init__()
        self.window = window

    def __call__(self, attn: Attention, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The layer's output [B, L, D]."""
        if not self.window.active:
            return super().__call__(attn, hidden_states, *args, **kwargs)  # type: ignore[no-any-return]
        # one by one: no mask is needed then, and the fast kernels take none
        drawn = [AttnProcessor2_0.__call__(self, attn, own, seen) for own, seen in self.window.seen(hidden_states)]
        return torch.stack(drawn, dim=1).flatten(0, 1)


@contextmanager
def drawn_together(unet: UNet2DConditionModel, window: PictureGroup) -> Iterator[None]:
    """Let the pictures of a window see each other in the self-attention of the upward half; afterwards as before."""
    before = dict(unet.attn_processors)
    consistent = {name: ConsistentAttention(window) for name in before if is_consistent(name)}
    unet.set_attn_processor({**before, **consistent})
    try:
        yield
    finally:
        unet.set_attn_processor(before)


def is_consistent(name: str) -> bool:
    """Whether an attention layer is one in which pictures see each other, by the name of its processor."""
    return name.startswith("up_blocks.") and ".attn1." in name


def windows(count: int, together: int, anchors: int) -> list[tuple[int, ...]]:
    """The pictures of a story, from 0, in windows of at most `together`; the later ones begin with the anchors."""
    first, new = tuple(range(min(count, together))), together - anchors
    rest = [range(start, min(start + new, count)) for start in range(together, count, new)]
    return [first, *((*range(anchors), *pictures) for pictures in rest)]
