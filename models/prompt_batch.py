"""Batch of prompts of the game model, padded on the right, and its attention masks: dense, and of FlexAttention.

Mistral is causal, but the queries of a shot predict all of its tokens at once, so they attend to one another in both
directions. Position i may attend to position j if

    allowed(i, j) = real_j and seen(i, j) and ((j <= i and p_j > p_i - window) or block_i = block_j >= 0)
    seen(i, j)    = branch_j is the trunk or branch_i = branch_j

`real_j` is False at padding, `p` are the positions, `window` is Mistral's sliding window (infinite if unset), `block_i`
numbers the runs of queries and is -1 elsewhere. Only packed prompts have branches: there each target is a branch, which
no other turn sees. Stock Mistral accepts a 2-D mask without an error and stays causal, so the mask is 4-D, in the form
of the attention implementation: boolean for `sdpa`, additive for `eager`.

Half of a packed prompt's pairs are masked. FlexAttention leaves out the blocks of pairs that are masked as a whole, but
only in compiled layers on a GPU. So `PACKED_ATTENTION` takes either mask, and a layer that is not compiled makes a
dense mask of FlexAttention's.

Shapes: B prompts, L positions or shot tokens, N rows of the flattened batch, D width of a shot token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, AttentionMaskInterface, MistralConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from models.tokens import PAD, TRUNK, TokenPrompt

PACKED_ATTENTION = "sdpa_or_flex"
"""Attention of Mistral that reads packed prompts in compiled layers."""
MASKED_ATTENTION = ("sdpa", "eager", PACKED_ATTENTION)
FLEX_BLOCK = 128
"""Positions in a block of FlexAttention; batches for it are padded to a multiple."""


@dataclass(frozen=True, eq=False)
class TensorBatch:
    """Dataclass of tensors, other batches, tuples and dictionaries of them, and plain values: it moves as a whole."""

    def to(self, device: torch.device, *, non_blocking: bool = True) -> Self:
        """Return the batch on a device; from pinned memory, the copy runs beside the GPU's work."""
        return self._moved(lambda part: part.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return the batch in page-locked memory; torch's DataLoader calls it."""
        return self._moved(lambda part: part.pin_memory())

    def _moved(self, move: Callable[[Any], Any]) -> Self:
        def moved(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(moved, value))
            if isinstance(value, dict):
                return {name: moved(each) for name, each in value.items()}
            return move(value) if isinstance(value, Tensor | TensorBatch) else value

        return type(self)(*(moved(getattr(self, field.name)) for field in fields(self)))


@dataclass(frozen=True, eq=False)
class PromptBatch(TensorBatch):
    """Prompts padded on the right. All rows are known on the host, so that the model never waits for the GPU."""

    ids_BL: Tensor
    query_mask_BL: Tensor
    """True at the queries; a run of queries without a gap is a block."""
    real_BL: Tensor
    """False at padding."""
    positions_BL: Tensor
    branches_BL: Tensor
    history_mask_BL: Tensor
    """True at the frame tokens of past turns."""
    history_ND: Tensor | None
    """Past shot tokens of all prompts in their order; None without any."""
    query_rows_N: Tensor
    """Rows of the queries in the flattened batch."""
    state_rows_N: Tensor
    """Rows whose logits predict states: the four slots of each target; in play `<ML>` alone."""
    targets: tuple[int, ...]
    """Number of targets of each prompt."""

    @classmethod
    def of(cls, prompts: Sequence[TokenPrompt], multiple: int = 1) -> Self:
        """Return prompts as one batch, on the CPU.

        Args:
            multiple: pad to a length that is a multiple of this.
        """
        longest = max(len(prompt.ids_L) for prompt in prompts)
        length = -(-longest // multiple) * multiple

        def padded(name: str, value: int = 0) -> Tensor:
            rows_BL = pad_sequence([getattr(each, name) for each in prompts], batch_first=True, padding_value=value)
            return nn.functional.pad(rows_BL, (0, length - longest), value=value)

        query_mask_BL = padded("query_mask_L")
        past = [each.history_LD for each in prompts if each.history_LD is not None]
        rows = [row * length + slot for row, prompt in enumerate(prompts) for slot in prompt.state_slots]
        return cls(
            ids_BL=padded("ids_L", PAD),
            query_mask_BL=query_mask_BL,
            real_BL=torch.arange(length) < torch.tensor([len(prompt.ids_L) for prompt in prompts])[:, None],
            positions_BL=padded("positions_L"),
            branches_BL=padded("branches_L", TRUNK),
            history_mask_BL=padded("history_mask_L"),
            history_ND=torch.cat(past) if past else None,
            query_rows_N=query_mask_BL.flatten().nonzero()[:, 0],
            state_rows_N=torch.tensor(rows),
            targets=tuple(len(prompt.targets) for prompt in prompts),
        )


def attention_mask(config: MistralConfig, batch: PromptBatch, dtype: torch.dtype) -> Tensor:
    """Attention mask of a batch that starts at position 0, to be passed to Mistral.

    Blocks of queries are separate, so no turn attends to a later one.

    Args:
        config: of the language model; holds the attention implementation and the sliding window.
        dtype: precision of the embeddings.

    Returns:
        Mask B1LL. For `eager` 0 where attention is allowed and the lowest float elsewhere; otherwise bool.

    Raises:
        ValueError: an attention implementation that does not support such a mask and would fall back to causal.
    """
    attention = config._attn_implementation
    if attention not in MASKED_ATTENTION:
        raise ValueError(f"attention {attention!r} cannot mask blocks of queries: load Mistral with 'sdpa' or 'eager'")
    count, length = batch.real_BL.shape
    mask_B1LL = _dense(_rule(batch, config.sliding_window), count, length, batch.real_BL.device)
    return in_form_of(config, mask_B1LL, dtype)


def in_form_of(config: MistralConfig, mask_B1LL: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a boolean mask in the form of the attention implementation."""
    if config._attn_implementation != "eager":
        return mask_B1LL
    return torch.zeros_like(mask_B1LL, dtype=dtype).masked_fill(~mask_B1LL, torch.finfo(dtype).min)


def block_mask(config: MistralConfig, batch: PromptBatch) -> BlockMask:
    """Return the same mask for FlexAttention."""
    count, length = batch.real_BL.shape
    rule = _rule(batch, config.sliding_window)
    return create_block_mask(rule, count, None, length, length, batch.real_BL.device, BLOCK_SIZE=FLEX_BLOCK)


def _dense(may_attend: Callable[..., Tensor], count: int, length: int, device: torch.device) -> Tensor:
    """Return the mask B1LL of a rule."""
    prompts_B, order_L = (torch.arange(size, device=device) for size in (count, length))
    return may_attend(prompts_B[:, None, None], None, order_L[:, None], order_L)[:, None]


def _rule(batch: PromptBatch, window: int | None) -> Callable[..., Tensor]:
    """Return a function from prompt b, head (not used), query i and key j to whether i may attend to j."""
    blocks_BL, branches_BL, positions_BL = block_numbers(batch.query_mask_BL), batch.branches_BL, batch.positions_BL

    def may_attend(b: Tensor, _head: Tensor | None, i: Tensor, j: Tensor) -> Tensor:
        # 1. Causal, within the sliding window; and queries of one block see one another.
        allowed = i >= j
        if window is not None:
            allowed = allowed & (positions_BL[b, i] - positions_BL[b, j] < window)
        allowed = allowed | ((blocks_BL[b, i] == blocks_BL[b, j]) & batch.query_mask_BL[b, j])
        # 2. Nothing sees padding, or the branch of another target.
        seen = (branches_BL[b, j] == TRUNK) | (branches_BL[b, j] == branches_BL[b, i])
        return allowed & seen & batch.real_BL[b, j]

    return may_attend


def block_numbers(query_mask_BL: Tensor) -> Tensor:
    """Number the runs of True in each row from 0; -1 where False. int64."""
    before_BL = nn.functional.pad(query_mask_BL, (1, 0))[:, :-1]
    starts_BL = query_mask_BL & ~before_BL
    return torch.where(query_mask_BL, starts_BL.cumsum(1) - 1, -1)


def pack_attention(config: MistralConfig) -> None:
    """Let compiled layers of Mistral read packed prompts by FlexAttention."""
    AttentionInterface.register(PACKED_ATTENTION, _attend)
    AttentionMaskInterface.register(PACKED_ATTENTION, sdpa_mask)  # of later passes, which bring no mask of ours
    config._attn_implementation = PACKED_ATTENTION


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | BlockMask | None,
    *,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend by FlexAttention in a compiled layer, otherwise with a dense mask."""
    if isinstance(attention_mask, BlockMask):
        if torch.compiler.is_compiling():
            attended_BHLD = flex_attention(query, key, value, block_mask=attention_mask, scale=scaling, enable_gqa=True)
            assert isinstance(attended_BHLD, Tensor)
            return attended_BHLD.transpose(1, 2).contiguous(), None
        # only in a pass that counts operations, so each layer may make the mask again
        attention_mask = _dense(attention_mask.mask_mod, query.shape[0], query.shape[2], query.device)
    attended_BLHD, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
    return attended_BLHD, None
