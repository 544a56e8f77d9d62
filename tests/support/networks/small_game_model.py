"""Small game model with random parameters, and prompts for it."""

from __future__ import annotations

from functools import cache

import torch
from transformers import LlamaTokenizer, MistralConfig, MistralForCausalLM

from models.config import Conventions, GameModelConfig, tiny_config
from models.game_model import GameModel, wrap_language_model
from models.tokens import PastTurn, State, TokenPrompt, shipped_tokenizer, write_prompt

SHOT, WIDTH, HIDDEN = 6, 128, 32
STATE = State(level=3, social=1, entertainment=0, stamina=-1)


def small_base(attention: str = "sdpa", window: int = 4096) -> MistralForCausalLM:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=32000, hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=window, attn_implementation=attention, initializer_range=0.2,
    )  # fmt: skip
    return MistralForCausalLM(config)


def small_model(attention: str = "sdpa", shift: int = 0, window: int = 4096) -> GameModel:
    """Game model with every trained part moved from its initial values, so that an omitted part changes the output."""
    config = tiny_config().replaced(conventions=Conventions(readout_shift=shift).model_dump())
    language_model = wrap_language_model(small_base(attention, window), GameModelConfig(lora_rank=4, lora_dropout=0.0))
    model = GameModel(language_model, config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


@cache
def shared_model(attention: str = "sdpa", shift: int = 0) -> GameModel:
    """Game model for tests that do not change it."""
    return small_model(attention, shift)


@cache
def mistral_tokenizer() -> LlamaTokenizer:
    return shipped_tokenizer()


def past_turn(seed: int, instruction: str = "Qiqi sleeps") -> PastTurn:
    return PastTurn(instruction, torch.randn(SHOT, WIDTH, generator=torch.Generator().manual_seed(seed)), STATE)


def prompt_of(instruction: str, *past: PastTurn, target: State | None = None) -> TokenPrompt:
    return write_prompt(mistral_tokenizer(), past, instruction, SHOT, Conventions(), target)
