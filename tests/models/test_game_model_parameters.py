"""Parameters of the game model: training, new rows, counts at full size, precision, and loading by plain peft."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import nn
from transformers import MistralConfig, MistralForCausalLM

from models.config import Conventions, GameModelConfig, ModelConfig, full_config, tiny_config
from models.game_model import GameModel, make_trainable, wrap_language_model
from models.prompt_batch import PromptBatch
from models.tokens import VOCABULARY
from pipeline.core.errors import UserError
from tests.support.networks.small_game_model import (
    HIDDEN,
    STATE,
    past_turn,
    prompt_of,
    small_base,
    small_model,
)


@pytest.mark.parametrize("past", [0, 1])
def test_every_trained_parameter_gets_a_gradient_and_no_other(past: int) -> None:
    model = small_model()
    output = model(PromptBatch.of([prompt_of("Qiqi runs", *(past_turn(one) for one in range(past)), target=STATE)]))
    (output.shot_tokens_NLD.square().mean() + output.state_logits_N4V.logsumexp(-1).mean()).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        if parameter.grad is not None and (past or "input_resampler" not in name):
            assert parameter.grad.any(), name
        elif parameter.grad is not None:
            assert not parameter.grad.any(), name


def test_adapters_norms_and_embeddings_are_trained() -> None:
    model = small_model()
    model.requires_grad_(False)
    listed = {id(parameter) for parameter in make_trainable(model.language_model)}
    trained = {name for name, one in model.language_model.named_parameters() if one.requires_grad}
    assert {id(one) for one in model.parameters() if one.requires_grad} == listed
    endings = {name.split("layers.")[-1].lstrip("01.") for name in trained}
    projections = [f"self_attn.{one}_proj" for one in "qkvo"] + [f"mlp.{one}_proj" for one in ("gate", "up", "down")]
    assert endings == {
        "base_model.model.model.embed_tokens.weight",
        "base_model.model.lm_head.weight",
        "base_model.model.model.norm.modules_to_save.default.weight",
        "input_layernorm.modules_to_save.default.weight",
        "post_attention_layernorm.modules_to_save.default.weight",
        *(f"{one}.lora_{half}.default.weight" for one in projections for half in "AB"),
    }


def test_new_rows_start_as_the_mean_and_three_times_the_mean() -> None:
    base = small_base()
    old_in, old_out = base.model.embed_tokens.weight.detach().clone(), base.lm_head.weight.detach().clone()
    wrapped = wrap_language_model(base, GameModelConfig()).get_base_model()
    for rows, old, scale in ((wrapped.model.embed_tokens.weight, old_in, 1), (wrapped.lm_head.weight, old_out, 3)):
        assert rows.shape == (32284, HIDDEN)
        assert torch.equal(rows[:32000], old)
        torch.testing.assert_close(rows[32000:], scale * old.mean(0).expand(284, -1))


def test_another_vocabulary_is_refused() -> None:
    base = MistralForCausalLM(MistralConfig(vocab_size=50, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                            num_attention_heads=2, num_key_value_heads=1))  # fmt: skip
    with pytest.raises(UserError, match=r"has 50 tokens where Mistral 7B v0\.1 has 32000"):
        wrap_language_model(base, GameModelConfig())


@pytest.mark.slow
def test_full_size_has_the_published_numbers_of_parameters() -> None:
    shape = MistralConfig(
        vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, sliding_window=4096, rms_norm_eps=1e-5,
    )  # fmt: skip
    config = full_config()
    with torch.device("meta"):
        model = GameModel(wrap_language_model(MistralForCausalLM(shape), config.game_model), config)
    assert model.language_model.get_nb_trainable_parameters() == (348_622_848, 7_328_210_944)
    resamplers = {name: tuple(one.shape) for name, one in model.named_parameters() if "resampler" in name}
    assert resamplers == {
        "input_resampler.0.weight": (4096, 1920), "input_resampler.0.bias": (4096,),
        "input_resampler.2.weight": (4096, 4096), "input_resampler.2.bias": (4096,),
        "output_resampler.0.weight": (1920, 4096), "output_resampler.0.bias": (1920,),
        "output_resampler.2.weight": (1920, 1920), "output_resampler.2.bias": (1920,),
    }  # fmt: skip


def test_plain_peft_round_trips_bit_for_bit(tmp_path: Path) -> None:
    model, prompt = small_model(), prompt_of("Qiqi runs", past_turn(1))
    model.language_model.save_pretrained(str(tmp_path), save_embedding_layers=True)
    names = load_file(tmp_path / "adapter_model.safetensors")
    assert {"base_model.model.model.embed_tokens.weight", "base_model.model.lm_head.weight"} <= names.keys()
    assert len(names) == 2 + 2 * 2 + 1 + 2 * 7 * 2  # embeddings, norms of two layers, last norm, adapters
    base = small_base()
    base.resize_token_embeddings(VOCABULARY)
    again = GameModel(PeftModel.from_pretrained(base, str(tmp_path)), config_of(model)).eval()
    again.input_resampler, again.output_resampler = model.input_resampler, model.output_resampler
    expected, result = model.predict(prompt), again.predict(prompt)
    assert torch.equal(result.shot_tokens_LD, expected.shot_tokens_LD)
    assert result.state == expected.state


def config_of(model: GameModel) -> ModelConfig:
    return tiny_config().replaced(conventions=Conventions(readout_shift=model.readout_shift).model_dump())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_predicts_close_to_full(dtype: torch.dtype) -> None:
    model, prompt = small_model(), prompt_of("Qiqi runs", past_turn(1))
    expected = model.predict(prompt).shot_tokens_LD
    result = model.to(dtype).predict(prompt).shot_tokens_LD
    assert result.dtype == dtype
    assert nn.functional.cosine_similarity(result.float(), expected, dim=1).min() > 0.98


def test_half_precision_base_trains_under_autocast() -> None:
    model = small_model()
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    prompt = prompt_of("Qiqi runs", past_turn(1), target=STATE)
    with torch.autocast("cpu", torch.bfloat16):
        output = model(PromptBatch.of([prompt]))
    output.shot_tokens_NLD.float().square().mean().backward()
    grads = [one.grad for one in model.parameters() if one.requires_grad and one.grad is not None]
    assert all(one.isfinite().all() and one.dtype == torch.float32 for one in grads)
