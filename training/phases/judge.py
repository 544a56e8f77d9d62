"""Adversarial term of few steps: a judge, which tells the student's samples from recorded latents.

    L_judge       = mean [softplus(D(x_t, t, c)) + softplus(-D(r_t, t, c))]    x without a gradient
    L_adversarial = mean softplus(-D(x_t, t, c))                               D without a gradient

with x a sample of the student and r the recorded latents of its conditions c, both noised alike. It is the only term
that sees recorded shots (Yin et al., arXiv 2405.14867, section 4.3).

D has a logit for each patch. It is the first half of the teacher's blocks, frozen and shared by reference, with a
head that is trained. DMD2 has the head on the critic. But then the student's term would leave a gradient in the critic,
and one backward pass could not serve all parts.

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from models.shot_decoder import ShotDecoder
from training.phases.condition import Condition

HEAD = "trunk.proj_out."
"""Start of the names of the trained parameters."""
_HIDDEN = 256


class Judge(nn.Module):
    """Network D.

    Args:
        teacher: frozen, without adapters.
        seed: of the head's first values: a run begun again has to have the same.
    """

    def __init__(self, teacher: ShotDecoder, seed: int) -> None:
        super().__init__()
        self.trunk: ShotDecoder = deepcopy(teacher, {id(each): each for each in teacher.parameters()})
        self.trunk.transformer_blocks = self.trunk.transformer_blocks[: (len(teacher.transformer_blocks) + 1) // 2]
        width, patch = teacher.proj_out.in_features, teacher.proj_out.out_features
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            head = nn.Sequential(nn.Linear(width, _HIDDEN), nn.GELU(), nn.Linear(_HIDDEN, patch))
        self.trunk.proj_out = head.to(teacher.proj_out.weight.device)

    def forward(self, condition: Condition, noised_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
        """Return a logit for each number of the latents, [B, T, C, H, W]: above 0 if they look recorded."""
        return condition.velocity(self.trunk, noised_BTCHW, timesteps_B)

    def loss(self, condition: Condition, drawn_BTCHW: Tensor, recorded_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
        """Return L_judge of each example [B]; both latents are noised."""
        drawn, recorded = (self(condition, each, timesteps_B) for each in (drawn_BTCHW, recorded_BTCHW))
        return (functional.softplus(drawn) + functional.softplus(-recorded)).flatten(1).mean(dim=1)

    def adversarial(self, condition: Condition, drawn_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
        """Return L_adversarial of each example [B], for noised samples with a gradient."""
        head = {name: each.detach() for name, each in self.named_parameters() if name.startswith(HEAD)}
        logits_BTCHW = functional_call(self, head, (condition, drawn_BTCHW, timesteps_B))
        return functional.softplus(-logits_BTCHW).flatten(1).mean(dim=1)
