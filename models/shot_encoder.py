"""The shot encoder: first frame and motion text of an animation shot to shot tokens.

With x the text states, p the picture's patch states (both from `models/conditions.py`) and [ , ] concatenation:

    proj(s)     = W2 gelu(W1 s + b1) + b2          text and patches have their own weights
    shot tokens = [LN(proj_text(x)), LN(proj_image(p))]

Letters of the shapes: B batch, L shot tokens, N text tokens, P patches, D width of each.

Module names and the LayerNorm epsilon are those of the released weights (paper arXiv 2504.01014, section 3.2).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.config import ShotEncoderConfig

HEAD_WIDTH = 64
"""Width of a head of the cross-attention ablation; equal to the shot decoder's."""


class ShotEncoder(nn.Module):
    """Encoder of motion text and first frame into the tokens of a shot.

    `config.variant` selects the method, `mlp`, or one of the paper's ablations. `linear` has one linear layer per
    input; both keep every text token. `addition` adds the mean text token to every patch token; in `cross_attention`
    the patch tokens attend to the text tokens; these two keep only the patches. The paper names the last two without
    describing them: their construction is our interpretation.
    """

    def __init__(self, config: ShotEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.text_proj = _projection(config.text_width, config)
        self.image_proj = _projection(config.image_width, config)
        self.text_norm = nn.LayerNorm(config.width, eps=1e-5)
        self.image_norm = nn.LayerNorm(config.width, eps=1e-5)
        if config.variant == "cross_attention":
            self.attention = nn.MultiheadAttention(config.width, _heads(config.width), batch_first=True)

    def forward(self, text_BND: Tensor, patches_BPD: Tensor) -> Tensor:
        """Return the shot tokens [B, config.shot_tokens, config.width].

        `text_BND` are the text encoder's states [B, text_tokens, text_width], `patches_BPD` the image encoder's
        [B, image_tokens, image_width]. ValueError when the number of tokens differs from the configuration's.
        """
        counts = text_BND.shape[1], patches_BPD.shape[1]
        expected = self.config.text_tokens, self.config.image_tokens
        if counts != expected:
            raise ValueError(f"text and patch tokens must be {expected} in number (shot_encoder), not {counts}")
        text_BND = self.text_norm(self.text_proj(text_BND))
        patches_BPD = self.image_norm(self.image_proj(patches_BPD))
        if self.config.variant == "addition":
            return torch.add(patches_BPD, text_BND.mean(dim=1, keepdim=True))
        if self.config.variant == "cross_attention":
            seen_BPD, _ = self.attention(patches_BPD, text_BND, text_BND, need_weights=False)
            return torch.add(patches_BPD, seen_BPD)
        return torch.cat([text_BND, patches_BPD], dim=1)

    def unconditional(self, batch: int) -> Tensor:
        """Unconditional shot tokens [batch, L, D] for guidance: the encoder's output for zero states.

        They are not zero, because of the biases and the norms. Training drops a condition the same way.
        """
        like, config = self.text_norm.weight, self.config
        text_BND = like.new_zeros(batch, config.text_tokens, config.text_width)
        patches_BPD = like.new_zeros(batch, config.image_tokens, config.image_width)
        return self(text_BND, patches_BPD)  # type: ignore[no-any-return]


def _projection(width: int, config: ShotEncoderConfig) -> nn.Sequential:
    """Projection of states of a width to the width of a shot token."""
    first = nn.Linear(width, config.width)
    if config.variant == "linear":
        return nn.Sequential(first)
    return nn.Sequential(first, nn.GELU(), nn.Linear(config.width, config.width))


def _heads(width: int) -> int:
    """Number of cross-attention heads: width / HEAD_WIDTH, or 1 if HEAD_WIDTH does not divide the width."""
    return width // HEAD_WIDTH if width % HEAD_WIDTH == 0 else 1
