"""The game model: Mistral, with adapters or trained whole, predicts the next turn from past turns and an instruction.

The shot tokens come from learned queries, which attend to everything before them and to one another. A second, short
pass decodes the state. Only legal tokens are candidates at each of its four slots, and the tags between are fixed, so
nothing needs parsing. With h the last layer's states, q the positions of the queries, p_k the positions of the opening
tags, R_in and R_out the resamplers:

    embedding at a frame token of a past turn = R_in(past shot token)
    shot tokens = R_out(h[q + readout_shift])
    state_k     = argmax over legal ids i of slot k of (W_head h[p_k])_i

The loss terms are in `training/phases/game.py`.

Mistral is causal, but the queries of a shot predict all of its tokens at once, so they attend to one another in both
directions. Position i may attend to position j if

    allowed(i, j) = real_j and seen(i, j) and ((j <= i and p_j > p_i - window) or block_i = block_j >= 0)
    seen(i, j)    = branch_j is the trunk or branch_i = branch_j

`real_j` is False at padding, `p` are the positions, `window` is Mistral's sliding window (infinite if unset), `block_i`
numbers the runs of queries and is -1 elsewhere. Only packed prompts have branches: there each target is a branch, which
no other turn sees. Stock Mistral accepts a 2-D mask without an error and stays causal, so the mask is 4-D, in the form
of the attention implementation: boolean for `sdpa`, additive for `eager`.

Shapes: B prompts, N targets of all prompts in their order, L positions or shot tokens, D width of a shot token, H of
the language model, V vocabulary, S positions of a state tree.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Self, TypeAlias

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, MistralConfig, MistralForCausalLM

from models.config import GameModelConfig, ModelConfig
from models.tokens import LEGAL_IDS, MISTRAL_VOCABULARY, PAD, STATE_TAGS, TRUNK, VOCABULARY, State, TokenPrompt
from pipeline.core.errors import UserError

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm", "norm")
OUTPUT_ROW_SCALE = 3.0
"""Scale of a new output row: it starts as this times the mean of the old rows, as in the released model's training."""
MASKED_ATTENTION = ("sdpa", "eager")


@dataclass(frozen=True, eq=False)
class GameOutput:
    """Predictions of the game model in training, one for each target."""

    shot_tokens_NLD: Tensor
    state_logits_N4V: Tensor
    """Logits over the whole vocabulary at the slots of level, social, entertainment and stamina."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """Prediction of the next turn: shot tokens for the shot decoder, and state."""

    shot_tokens_LD: Tensor
    state: State


LanguageModel: TypeAlias = PeftModel | MistralForCausalLM
"""Mistral with adapters, or without any, to be trained whole."""


def wrap_language_model(base: MistralForCausalLM, config: GameModelConfig) -> LanguageModel:
    """Add 284 tokens and adapters to Mistral, in place. With rank 0, return the base, which already has these tokens.

    Only the adapters, a copy of every norm, and both embeddings in full are trainable afterwards. New input rows are
    the mean of the old ones, new output rows three times the mean.

    Raises:
        UserError: the base does not have Mistral's 32,000 tokens, or lacks the game's tokens with rank 0.
    """
    if not config.lora_rank:
        if base.config.vocab_size != VOCABULARY:
            raise UserError(f"a language model without adapters has {VOCABULARY} tokens, not {base.config.vocab_size}")
        return base
    if base.config.vocab_size != MISTRAL_VOCABULARY:
        raise UserError(
            f"the language model has {base.config.vocab_size} tokens where Mistral 7B v0.1 has {MISTRAL_VOCABULARY}: "
            f"name Mistral-7B-Instruct-v0.1 as base `language_model`"
        )
    base.resize_token_embeddings(VOCABULARY, mean_resizing=False)
    with torch.no_grad():
        for rows_VH, scale in ((base.model.embed_tokens.weight, 1.0), (base.lm_head.weight, OUTPUT_ROW_SCALE)):
            rows_VH[MISTRAL_VOCABULARY:] = rows_VH[:MISTRAL_VOCABULARY].float().mean(0) * scale
    adapters = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=list(PROJECTIONS),
        modules_to_save=list(NORMS),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
        model = get_peft_model(base, adapters)
    assert isinstance(model, PeftModel)
    make_trainable(model)
    return model


def make_trainable(language_model: LanguageModel) -> list[nn.Parameter]:
    """Make adapters, norm copies and embeddings trainable, freeze the rest, and return the trainable parameters.

    Without adapters all parameters are trainable.
    """
    if not isinstance(language_model, PeftModel):
        language_model.requires_grad_(True)
        return list(language_model.parameters())
    language_model.requires_grad_(False)
    trained = [p for name, p in language_model.named_parameters() if ".lora_" in name or ".modules_to_save." in name]
    base = mistral_of(language_model)
    trained += [base.model.embed_tokens.weight, base.lm_head.weight]
    for parameter in trained:
        parameter.requires_grad_(True)
    return trained


def mistral_of(language_model: LanguageModel) -> MistralForCausalLM:
    """Return Mistral without a peft wrapper, with any adapters in its layers."""
    base = language_model.get_base_model() if isinstance(language_model, PeftModel) else language_model
    assert isinstance(base, MistralForCausalLM)
    return base


class GameModel(nn.Module):
    """Mistral between two resamplers."""

    def __init__(self, language_model: LanguageModel, config: ModelConfig) -> None:
        super().__init__()
        hidden, width = mistral_of(language_model).config.hidden_size, config.shot_encoder.width
        self.language_model = language_model
        self.input_resampler = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.output_resampler = nn.Sequential(nn.Linear(hidden, width), nn.GELU(), nn.Linear(width, width))
        self.readout_shift = config.conventions.readout_shift

    def forward(self, prompts: Sequence[TokenPrompt]) -> GameOutput:
        """Predict shot tokens and state logits of turns with a known target state, for training.

        Prompts of different lengths are padded on the right; the padding does not change any prediction.

        Raises:
            ValueError: a prompt without a target.
        """
        if not all(prompt.targets for prompt in prompts):
            raise ValueError("training needs prompts with a target state: pass one to write_prompt")
        states_BLH = self._read(prompts, cache=None)
        length, targets = states_BLH.shape[1], sum(len(prompt.targets) for prompt in prompts)
        rows = [row * length + slot for row, prompt in enumerate(prompts) for slot in prompt.state_slots]
        slot_states_N4H = _at_rows(states_BLH, torch.tensor(rows)).view(targets, 4, -1)
        return GameOutput(
            self._shot_tokens(states_BLH, prompts, targets), mistral_of(self.language_model).lm_head(slot_states_N4H)
        )

    @torch.no_grad()
    def predict(self, prompt: TokenPrompt) -> Prediction:
        """Predict the next turn: shot tokens and the most likely legal state. The network must be in `eval()`.

        Raises:
            ValueError: a prompt with a target state: it would be copied, not predicted.
        """
        if prompt.targets:
            raise ValueError("a prompt to play from has no target state")
        cache = DynamicCache()
        states_1LH = self._read([prompt], cache)
        shot_tokens_1LD = self._shot_tokens(states_1LH, [prompt], 1)
        return Prediction(shot_tokens_1LD[0], self._decode_state(states_1LH[0], cache))

    def merge_adapters(self) -> None:
        """Merge the adapters into Mistral's weights, for play: fewer and larger products; only training needs both."""
        if isinstance(self.language_model, PeftModel):
            self.language_model = self.language_model.merge_and_unload()

    def _read(self, prompts: Sequence[TokenPrompt], cache: DynamicCache | None) -> Tensor:
        """States of the last layer after the final norm, BLH."""
        mistral = mistral_of(self.language_model)
        device = mistral.model.embed_tokens.weight.device
        ids_BL = pad_sequence([prompt.ids_L for prompt in prompts], batch_first=True, padding_value=PAD)
        embeddings_BLH = self._with_history(mistral.model.embed_tokens(ids_BL.to(device)), prompts)
        layout = Layout.of(prompts).to(device)
        states_BLH: Tensor = mistral.model(
            inputs_embeds=embeddings_BLH,
            attention_mask=attention_mask(mistral.config, layout, embeddings_BLH.dtype),
            position_ids=layout.positions_BL,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state
        return states_BLH

    def _with_history(self, embeddings_BLH: Tensor, prompts: Sequence[TokenPrompt]) -> Tensor:
        """Replace the embeddings of past frame tokens by resampled past shot tokens.

        Without past turns the resampler runs on zero rows: its parameters then have a gradient of zero instead of
        None, as data-parallel training needs.
        """
        weight_HD = next(self.input_resampler.parameters())
        history_BL = pad_sequence([prompt.history_mask_L for prompt in prompts], batch_first=True)
        shots = [prompt.history_LD.to(weight_HD) for prompt in prompts if prompt.history_LD is not None]
        shots_LD = torch.cat([weight_HD.new_zeros(0, weight_HD.shape[1]), *shots])
        shots_LH = self.input_resampler(shots_LD).to(embeddings_BLH.dtype)
        return embeddings_BLH.masked_scatter(history_BL.to(weight_HD.device)[:, :, None], shots_LH)

    def _shot_tokens(self, states_BLH: Tensor, prompts: Sequence[TokenPrompt], shots: int) -> Tensor:
        """Shot tokens R_out(h[q + readout_shift]) of all targets, NLD."""
        query_mask_BL = pad_sequence([prompt.query_mask_L for prompt in prompts], batch_first=True)
        rows = query_mask_BL.flatten().nonzero().flatten() + self.readout_shift
        weight_DH = next(self.output_resampler.parameters())
        tokens_LD: Tensor = self.output_resampler(_at_rows(states_BLH, rows).to(weight_DH.dtype))
        return tokens_LD.view(shots, -1, tokens_LD.shape[-1])

    def _decode_state(self, states_LH: Tensor, cache: DynamicCache) -> State:
        """Decode the four values from the states of a prompt, which ends with `<ML>`, and its cache.

        One pass reads all that may follow the level. The values one by one would take three passes, each as long as
        the launches of its kernels, and the host would wait for each value.
        """
        mistral, tree, device = mistral_of(self.language_model), STATE_TREE, states_LH.device
        # 1. Choose the level, without waiting for it.
        levels_C = torch.tensor(LEGAL_IDS[0]).to(device, non_blocking=True)
        best_1 = mistral.lm_head(states_LH[-1]).index_select(0, levels_C).argmax(0, keepdim=True)
        level_1 = levels_C.index_select(0, best_1)
        # 2. Read the tree after it. A position sees the prompt, within the sliding window, and its ancestors.
        past, window = len(states_LH), mistral.config.sliding_window
        positions_S = past + tree.depths_S
        seen_SL = positions_S[:, None] - torch.arange(past) < (window or math.inf)
        mask_11SL = torch.cat([seen_SL, tree.seen_SS], dim=1).to(device, non_blocking=True)[None, None]
        states_SH = mistral.model(
            torch.cat([level_1, tree.ids_S.to(device, non_blocking=True)])[None],
            attention_mask=_in_form_of(mistral.config, mask_11SL, states_LH.dtype),
            position_ids=positions_S.to(device, non_blocking=True)[None],
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state[0]
        # 3. Follow the most likely legal values. Only here does the host wait.
        logits_NV = mistral.lm_head(states_SH[2::3]).cpu()
        chosen = [int(level_1)]
        for legal in LEGAL_IDS[1:]:
            logits_V = logits_NV[tree.paths.index(tuple(chosen[1:]))]
            chosen.append(legal[int(logits_V[list(legal)].argmax())])
        return State.from_ids(chosen)


@dataclass(frozen=True, eq=False)
class StateTree:
    """All that may follow the level of a state, up to the last slot.

    It has three positions for each legal path of values: its last value, that slot's closing tag, and the next opening
    tag. The first path is empty and stands for the level.
    """

    paths: Sequence[tuple[int, ...]]
    ids_S: Tensor
    """Without the first, the level's."""
    depths_S: Tensor
    """Distances from the level, in a state with that path."""
    seen_SS: Tensor
    """True for the position itself and its ancestors."""

    @classmethod
    def of_legal_values(cls) -> Self:
        """Return the tree of the legal values."""
        paths = [path for length in range(len(LEGAL_IDS) - 1) for path in product(*LEGAL_IDS[1 : 1 + length])]
        places = [(path, 3 * len(path) + nth) for path in paths for nth in range(3)]
        seen = [[path[: len(other)] == other and near <= far for other, near in places] for path, far in places]
        ids = [(*path[-1:], STATE_TAGS[len(path)][1], STATE_TAGS[len(path) + 1][0]) for path in paths]
        return cls(
            paths,
            ids_S=torch.tensor([each for node in ids for each in node]),
            depths_S=torch.tensor([depth for _, depth in places]),
            seen_SS=torch.tensor(seen),
        )


STATE_TREE = StateTree.of_legal_values()


def _at_rows(states_BLH: Tensor, rows_N: Tensor) -> Tensor:
    """Return some rows of the flattened batch. A mask in their place would make the host wait for the GPU."""
    return states_BLH.flatten(0, 1).index_select(0, rows_N.to(states_BLH.device, non_blocking=True))


@dataclass(frozen=True, eq=False)
class Layout:
    """Arrangement of a batch of prompts, padded on the right."""

    query_mask_BL: Tensor
    """True at the queries; a run of queries without a gap is a block."""
    real_BL: Tensor
    """False at padding."""
    positions_BL: Tensor
    branches_BL: Tensor

    @classmethod
    def of(cls, prompts: Sequence[TokenPrompt]) -> Self:
        """Return the layout of prompts, on the CPU."""
        return cls(
            pad_sequence([prompt.query_mask_L for prompt in prompts], batch_first=True),
            pad_sequence([torch.ones_like(prompt.query_mask_L) for prompt in prompts], batch_first=True),
            pad_sequence([prompt.positions_L for prompt in prompts], batch_first=True),
            pad_sequence([prompt.branches_L for prompt in prompts], batch_first=True, padding_value=TRUNK),
        )

    def to(self, device: torch.device) -> Self:
        """Return the layout on a device."""
        return type(self)(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))


def attention_mask(config: MistralConfig, layout: Layout, dtype: torch.dtype) -> Tensor:
    """Attention mask of a batch that starts at position 0, to be passed to Mistral.

    Blocks of queries are separate, so no turn attends to a later one.

    Args:
        config: of the language model; holds the attention implementation and the sliding window.
        dtype: precision of the embeddings.

    Returns:
        Mask B1LL. For `sdpa` bool, True where attention is allowed; for `eager` 0 there and the lowest float elsewhere.

    Raises:
        ValueError: an attention implementation that does not support such a mask and would fall back to causal.
    """
    attention = config._attn_implementation
    if attention not in MASKED_ATTENTION:
        raise ValueError(f"attention {attention!r} cannot mask blocks of queries: load Mistral with 'sdpa' or 'eager'")
    # 1. Causal, within the sliding window; and queries of one block see one another.
    order_L = torch.arange(layout.real_BL.shape[1], device=layout.real_BL.device)
    allowed_BLL = (order_L[:, None] >= order_L).expand(len(layout.real_BL), -1, -1)
    if config.sliding_window is not None:
        back_BLL = layout.positions_BL[:, :, None] - layout.positions_BL[:, None]
        allowed_BLL = allowed_BLL & (back_BLL < config.sliding_window)
    blocks_BL = block_numbers(layout.query_mask_BL)
    allowed_BLL = allowed_BLL | ((blocks_BL[:, :, None] == blocks_BL[:, None]) & layout.query_mask_BL[:, None])
    # 2. Nothing sees padding, or the branch of another target.
    branches_BL = layout.branches_BL
    allowed_BLL &= (branches_BL[:, None] == TRUNK) | (branches_BL[:, None] == branches_BL[:, :, None])
    return _in_form_of(config, (allowed_BLL & layout.real_BL[:, None])[:, None], dtype)


def _in_form_of(config: MistralConfig, mask_B1LL: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a boolean mask in the form of the attention implementation."""
    if config._attn_implementation == "sdpa":
        return mask_B1LL
    return torch.zeros_like(mask_B1LL, dtype=dtype).masked_fill(~mask_B1LL, torch.finfo(dtype).min)


def block_numbers(query_mask_BL: Tensor) -> Tensor:
    """Number the runs of True in each row from 0; -1 where False. int64."""
    before_BL = torch.nn.functional.pad(query_mask_BL, (1, 0))[:, :-1]
    starts_BL = query_mask_BL & ~before_BL
    return torch.where(query_mask_BL, starts_BL.cumsum(1) - 1, -1)
