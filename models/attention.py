"""Attention mask of the game model: causal, bidirectional within one shot's queries.

Position i may attend to position j if

    allowed(i, j) = real_j and ((j <= i and j > i - window) or block_i = block_j >= 0)

`real_j` is False at padding, `window` is Mistral's sliding window (infinite if unset), `block_i` numbers the runs of
queries and is -1 elsewhere.

Mistral is causal. The queries of a shot predict all of its tokens at once, so they attend to one another in both
directions. A 2-D mask cannot express that: stock Mistral accepts one without an error and stays causal. So the mask is
4-D, in the form of the attention implementation: boolean for `sdpa`, additive for `eager`.

Shapes: B batch, L positions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import MistralConfig
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

MASKED_ATTENTION = ("sdpa", "eager")


def query_block_mask(config: MistralConfig, embeddings_BLD: Tensor, query_mask_BL: Tensor, real_BL: Tensor) -> Tensor:
    """Attention mask of a batch that starts at position 0, to be passed to Mistral as `attention_mask`.

    A run of queries without a gap is a block. Blocks are separate, so no turn attends to a later one.

    Args:
        config: of the language model; holds the attention implementation and the sliding window.
        embeddings_BLD: the input; only shape, precision and device are used.
        query_mask_BL: bool, True at the queries.
        real_BL: bool, False at padding, which no position attends to.

    Returns:
        Mask B1LL. For `sdpa` bool, True where attention is allowed; for `eager` 0 there and the lowest float elsewhere.

    Raises:
        ValueError: an attention implementation that does not support such a mask and would fall back to causal.
    """
    attention = config._attn_implementation
    if attention not in MASKED_ATTENTION:
        raise ValueError(f"attention {attention!r} cannot mask blocks of queries: load Mistral with 'sdpa' or 'eager'")
    create = create_causal_mask if config.sliding_window is None else create_sliding_window_causal_mask
    mask_B1LL = create(
        config=config,
        inputs_embeds=embeddings_BLD,
        attention_mask=real_BL,
        past_key_values=None,
        block_sequence_ids=block_numbers(query_mask_BL),
    )
    assert isinstance(mask_B1LL, Tensor)  # None only where plain causal attention is enough, never with blocks
    return mask_B1LL


def block_numbers(query_mask_BL: Tensor) -> Tensor:
    """Number the runs of True in each row from 0; -1 where False. int64."""
    before_BL = torch.nn.functional.pad(query_mask_BL, (1, 0))[:, :-1]
    starts_BL = query_mask_BL & ~before_BL
    return torch.where(query_mask_BL, starts_BL.cumsum(1) - 1, -1)
