"""Attention masks of prompts, against Mistral restated in numpy; and those of FlexAttention, against the dense ones.

Shapes: B batch, L positions, H width of the language model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import MistralConfig, MistralModel

from models.config import Conventions
from models.prompt_batch import FLEX_BLOCK, PromptBatch, attention_mask, block_mask, pack_attention
from models.tokens import write_packed_prompt
from tests.support.networks.small_game_model import (
    SHOT,
    mistral_tokenizer,
    past_turn,
    small_model,
)

Rule = Callable[[int, int], bool]
ATTENTIONS = pytest.mark.parametrize("attention", ["sdpa", "eager"])


def small_mistral(attention: str = "sdpa", window: int | None = None) -> MistralModel:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=16, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, sliding_window=window, attn_implementation=attention, initializer_range=0.3,
    )  # fmt: skip
    return MistralModel(config).eval()


def places(length: int, *queries: int) -> Tensor:
    return torch.isin(torch.arange(length), torch.tensor(queries))[None]


def batch_of(query_mask_BL: Tensor, real_BL: Tensor) -> PromptBatch:
    """Batch of which only the masks are read."""
    positions_BL, none_N = torch.arange(query_mask_BL.shape[1]).expand(query_mask_BL.shape), torch.empty(0).long()
    branches_BL, history_mask_BL = torch.full_like(positions_BL, -1), torch.zeros_like(query_mask_BL)
    rows = (history_mask_BL, None, none_N, none_N, ())
    return PromptBatch(positions_BL, query_mask_BL, real_BL, positions_BL, branches_BL, *rows)


def run(model: MistralModel, embeddings_BLH: Tensor, query_mask_BL: Tensor, real_BL: Tensor | None = None) -> Tensor:
    batch = batch_of(query_mask_BL, torch.ones_like(query_mask_BL) if real_BL is None else real_BL)
    mask = attention_mask(model.config, batch, embeddings_BLH.dtype)
    with torch.no_grad():
        return model(inputs_embeds=embeddings_BLH, attention_mask=mask, use_cache=False).last_hidden_state


def inputs(length: int, batch: int = 1) -> Tensor:
    return torch.randn(batch, length, 32, generator=torch.Generator().manual_seed(1))


def restated(model: MistralModel, embeddings_LH: Tensor, visible: Rule) -> np.ndarray:
    """Mistral in numpy, in double precision, with explicit attention of each position to its visible ones."""
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    x_LH = embeddings_LH.double().numpy()
    for index in range(2):
        own = {name.removeprefix(f"layers.{index}."): w for name, w in weights.items() if f"layers.{index}." in name}
        x_LH = x_LH + attended(rms_norm(x_LH, own["input_layernorm.weight"]), own, visible)
        y_LH = rms_norm(x_LH, own["post_attention_layernorm.weight"])
        gate = y_LH @ own["mlp.gate_proj.weight"].T
        x_LH = (
            x_LH + (gate / (1 + np.exp(-gate)) * (y_LH @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T
        )
    return rms_norm(x_LH, weights["norm.weight"])


def rms_norm(x_LH: np.ndarray, weight_H: np.ndarray) -> np.ndarray:
    return x_LH / np.sqrt((x_LH**2).mean(-1, keepdims=True) + 1e-6) * weight_H


def rotated(vector: np.ndarray, place: int) -> np.ndarray:
    half = len(vector) // 2
    angle = place * 10000.0 ** (-np.arange(half) / half)
    first, second = vector[:half], vector[half:]
    return np.concatenate(
        [first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)]
    )


def attended(x_LH: np.ndarray, own: dict[str, np.ndarray], visible: Rule) -> np.ndarray:
    q, k, v = ((x_LH @ own[f"self_attn.{name}_proj.weight"].T).reshape(len(x_LH), -1, 8) for name in "qkv")
    out = np.zeros_like(q)
    for here in range(len(x_LH)):
        seen = [there for there in range(len(x_LH)) if visible(here, there)]
        for head in range(4):
            pair = head // 2  # two query heads share a key head
            query = rotated(q[here, head], here)
            scores = np.array([query @ rotated(k[there, pair], there) for there in seen]) / np.sqrt(8)
            share = np.exp(scores - scores.max())
            out[here, head] = share @ v[seen, pair] / share.sum()
    return out.reshape(len(x_LH), -1) @ own["self_attn.o_proj.weight"].T


def causal(here: int, there: int) -> bool:
    return there <= here


@ATTENTIONS
def test_queries_see_one_another_in_a_real_mistral(attention: str) -> None:
    model, embeddings_1LH, queries = small_mistral(attention), inputs(12), range(4, 9)
    expected = restated(model, embeddings_1LH[0], lambda q, k: k <= q or (q in queries and k in queries))
    result = run(model, embeddings_1LH, places(12, *queries))[0].numpy()
    np.testing.assert_allclose(result, expected, atol=2e-5)
    # the restatement can fail: plain causal attention differs from the first query on
    plain = restated(model, embeddings_1LH[0], causal)
    np.testing.assert_allclose(result[:4], plain[:4], atol=2e-5)
    assert np.abs(result[4:] - plain[4:]).max(-1).min() > 1e-3


@ATTENTIONS
def test_two_blocks_do_not_attend_to_each_other(attention: str) -> None:
    model, embeddings_1LH, first, second = small_mistral(attention), inputs(14), range(3, 6), range(9, 12)

    def visible(query: int, key: int) -> bool:
        return key <= query or any(query in block and key in block for block in (first, second))

    query_mask_1L = places(14, *first, *second)
    result = run(model, embeddings_1LH, query_mask_1L)
    np.testing.assert_allclose(result[0].numpy(), restated(model, embeddings_1LH[0], visible), atol=2e-5)
    changed_1LH = embeddings_1LH.clone()
    changed_1LH[:, 6:] += 1
    assert torch.equal(run(model, changed_1LH, query_mask_1L)[:, :6], result[:, :6]), (
        "a later turn leaks into an earlier"
    )


@ATTENTIONS
@pytest.mark.parametrize("real", [range(7), range(5, 12)], ids=["right", "left"])
def test_padding_is_never_attended_and_stays_finite(attention: str, real: range) -> None:
    model, embeddings_BLH = small_mistral(attention), inputs(12, batch=2)
    queries = [real[2], real[3], real[4]]
    query_mask_BL, real_BL = places(12, *queries).repeat(2, 1), torch.cat([places(12, *range(12)), places(12, *real)])
    result = run(model, embeddings_BLH, query_mask_BL, real_BL)
    assert result.isfinite().all()
    alone = run(model, embeddings_BLH[1:, real], query_mask_BL[1:, real])  # from another position 0
    torch.testing.assert_close(result[1:, real], alone, atol=1e-5, rtol=1e-4)
    embeddings_BLH[1] += torch.where(real_BL[1], 0, 100)[:, None]
    torch.testing.assert_close(
        run(model, embeddings_BLH, query_mask_BL, real_BL)[1:, real], alone, atol=1e-5, rtol=1e-4
    )


@ATTENTIONS
def test_the_sliding_window_of_mistral_is_kept(attention: str) -> None:
    model, embeddings_1LH, queries = small_mistral(attention, window=4), inputs(14), range(5, 11)
    expected = restated(model, embeddings_1LH[0], lambda q, k: q - 4 < k <= q or (q in queries and k in queries))
    result = run(model, embeddings_1LH, places(14, *queries))[0].numpy()
    np.testing.assert_allclose(result, expected, atol=2e-5)


def test_an_attention_that_cannot_take_the_mask_is_refused() -> None:
    config = MistralConfig(vocab_size=16, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="'flash_attention_2' cannot mask blocks of queries"):
        attention_mask(config, batch_of(places(4, 1, 2), places(4, 0, 1, 2, 3)), torch.float32)


def packed_batch(multiple: int = 1) -> PromptBatch:
    films = [[past_turn(turn, f"Qiqi runs {'on ' * turn}") for turn in range(turns)] for turns in (5, 3)]
    prompts = [write_packed_prompt(mistral_tokenizer(), film, SHOT, Conventions()) for film in films]
    return PromptBatch.of(prompts, multiple)


@pytest.mark.parametrize("window", [None, 40])
def test_flex_attention_on_packed_prompts_is_attention_with_the_dense_mask(window: int | None) -> None:
    batch = packed_batch()
    config = MistralConfig(sliding_window=window, attn_implementation="sdpa")
    mask_B1LL = attention_mask(config, batch, torch.float32)
    count, length = batch.ids_BL.shape
    drawn = torch.randn(3, count, 2, length, 16, generator=torch.Generator().manual_seed(0))
    flexible, dense = (
        flex_attention(*drawn, block_mask=block_mask(config, batch)),
        scaled_dot_product_attention(*drawn, attn_mask=mask_B1LL),
    )
    real_B1L1 = batch.real_BL[:, None, :, None]  # padding that sees nothing is 0 or nan
    torch.testing.assert_close(flexible.where(real_B1L1, 0.0), dense.where(real_B1L1, 0.0), atol=1e-5, rtol=1e-5)


def test_compiled_layers_of_the_game_model_read_packed_prompts_by_flex_attention() -> None:
    batch, model = packed_batch(FLEX_BLOCK), small_model().train()
    with torch.no_grad():
        dense = model(packed_batch())
        pack_attention(model.language_model.get_base_model().config)
        for layer in model.language_model.get_base_model().model.layers:
            layer.compile(fullgraph=True, backend="eager")
        flexible = model(batch)
        with torch.compiler.set_stance("force_eager"):
            counted = model(batch)
    for found in (flexible, counted):
        torch.testing.assert_close(found.shot_tokens_NLD, dense.shot_tokens_NLD, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.state_logits_N4V, dense.state_logits_N4V, atol=1e-5, rtol=1e-5)
