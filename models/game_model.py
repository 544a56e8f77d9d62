"""The game model: Mistral, with adapters or trained whole, predicts the next turn from past turns and an instruction.

The shot tokens come from learned queries, which attend to everything before them and to one another. A second, short
pass decodes the state. Only legal tokens are candidates at each of its four slots, and the tags between are fixed, so
nothing needs parsing. With h the last layer's states, q the positions of the queries, p_k the positions of the opening
tags, R_in and R_out the resamplers:

    embedding at a frame token of a past turn = R_in(past shot token)
    shot tokens = R_out(h[q + readout_shift])
    state_k     = argmax over legal ids i of slot k of (W_head h[p_k])_i

The loss terms are in `training/phases/game.py`.

The attention masks are in `models/prompt_batch.py`.

Shapes: B prompts, N targets of all prompts in their order, L positions or shot tokens, D width of a shot token, H of
the language model, V vocabulary, S positions of a state tree.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TypeAlias

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import DynamicCache, MistralForCausalLM

from models.config import GameModelConfig, ModelConfig
from models.prompt_batch import PACKED_ATTENTION, PromptBatch, attention_mask, block_mask, in_form_of
from models.state_tree import STATE_TREE
from models.tokens import LEGAL_IDS, MISTRAL_VOCABULARY, VOCABULARY, State, TokenPrompt
from pipeline.core.errors import UserError

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm", "norm")
OUTPUT_ROW_SCALE = 3.0
"""Scale of a new output row: it starts as this times the mean of the old rows, as in the released model's training."""


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

    def forward(self, batch: PromptBatch) -> GameOutput:
        """Predict shot tokens and state logits of turns with a known target state, for training.

        Raises:
            ValueError: a prompt without a target.
        """
        if not all(batch.targets):
            raise ValueError("training needs prompts with a target state: pass one to write_prompt")
        states_BLH, targets = self._read(batch, cache=None), sum(batch.targets)
        slot_states_N4H = states_BLH.flatten(0, 1).index_select(0, batch.state_rows_N).view(targets, 4, -1)
        return GameOutput(
            self._shot_tokens(states_BLH, batch, targets), mistral_of(self.language_model).lm_head(slot_states_N4H)
        )

    @torch.no_grad()
    def predict(self, prompt: TokenPrompt) -> Prediction:
        """Predict the next turn: shot tokens and the most likely legal state. The network must be in `eval()`.

        Raises:
            ValueError: a prompt with a target state: it would be copied, not predicted.
        """
        if prompt.targets:
            raise ValueError("a prompt to play from has no target state")
        mistral = mistral_of(self.language_model)
        cache, batch = DynamicCache(), PromptBatch.of([prompt])
        batch = batch.to(mistral.model.embed_tokens.weight.device)
        states_1LH = self._read(batch, cache)
        shot_tokens_1LD = self._shot_tokens(states_1LH, batch, 1)
        return Prediction(shot_tokens_1LD[0], self._decode_state(states_1LH[0], cache))

    def merge_adapters(self) -> None:
        """Merge the adapters into Mistral's weights, for play: fewer and larger products; only training needs both."""
        if isinstance(self.language_model, PeftModel):
            self.language_model = self.language_model.merge_and_unload()

    def _read(self, batch: PromptBatch, cache: DynamicCache | None) -> Tensor:
        """States of the last layer after the final norm, BLH."""
        mistral = mistral_of(self.language_model)
        embeddings_BLH = self._with_history(mistral.model.embed_tokens(batch.ids_BL), batch)
        packed = self.training and mistral.config._attn_implementation == PACKED_ATTENTION
        states_BLH: Tensor = mistral.model(
            inputs_embeds=embeddings_BLH,
            attention_mask=(
                block_mask(mistral.config, batch)
                if packed
                else attention_mask(mistral.config, batch, embeddings_BLH.dtype)
            ),
            position_ids=batch.positions_BL,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state
        return states_BLH

    def _with_history(self, embeddings_BLH: Tensor, batch: PromptBatch) -> Tensor:
        """Replace the embeddings of past frame tokens by resampled past shot tokens.

        Without past turns the resampler runs on zero rows: its parameters then have a gradient of zero instead of
        None, as data-parallel training needs.
        """
        weight_HD = next(self.input_resampler.parameters())
        shots_ND = weight_HD.new_zeros(0, weight_HD.shape[1]) if batch.history_ND is None else batch.history_ND
        shots_NH = self.input_resampler(shots_ND.to(weight_HD)).to(embeddings_BLH.dtype)
        return embeddings_BLH.masked_scatter(batch.history_mask_BL[:, :, None], shots_NH)

    def _shot_tokens(self, states_BLH: Tensor, batch: PromptBatch, shots: int) -> Tensor:
        """Shot tokens R_out(h[q + readout_shift]) of all targets, NLD."""
        states_NH = states_BLH.flatten(0, 1).index_select(0, batch.query_rows_N + self.readout_shift)
        tokens_ND: Tensor = self.output_resampler(states_NH.to(next(self.output_resampler.parameters()).dtype))
        return tokens_ND.view(shots, -1, tokens_ND.shape[-1])

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
            attention_mask=in_form_of(mistral.config, mask_11SL, states_LH.dtype),
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
