"""Game model: predictions of one pass with a cache, against explicit passes over the whole sequence.

Shapes: B batch, L positions or shot tokens, D width of a shot token, H of the language model, V vocabulary.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaTokenizer, MistralConfig, MistralForCausalLM

from models.config import Conventions, GameModelConfig, ModelConfig, full_config, tiny_config
from models.game_model import GameModel, make_trainable, wrap_language_model
from models.tokens import LEGAL_IDS, VOCABULARY, PastTurn, State, TokenPrompt, shipped_tokenizer, write_prompt
from pipeline.core.errors import UserError

SHOT, WIDTH, HIDDEN = 6, 128, 32
STATE = State(level=3, social=1, entertainment=0, stamina=-1)
ID = {"<ML>": 32274, "</ML>": 32275, "<SC>": 32276, "</SC>": 32277, "<ET>": 32278, "</ET>": 32279, "<ST>": 32280}


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


def states_without_cache(model: GameModel, prompt: TokenPrompt, more: list[int]) -> Tensor:
    """States of one pass over the prompt and the ids after it, with explicit mask and splice for each position."""
    base = model.language_model.get_base_model()
    ids = prompt.ids_L.tolist() + more
    rows = [base.model.embed_tokens.weight[one] for one in ids]
    shots = iter(model.input_resampler(prompt.history_LD)) if prompt.history_LD is not None else iter(())
    queries = prompt.query_mask_L.tolist() + [False] * len(more)
    for place, past in enumerate(prompt.history_mask_L.tolist()):
        if past:
            rows[place] = next(shots)
    queries_L, places_L = torch.tensor(queries), torch.arange(len(ids))
    back_LL = places_L[:, None] - places_L[None]
    visible_LL = ((back_LL >= 0) & (back_LL < base.config.sliding_window)) | (queries_L[None] & queries_L[:, None])
    mask_LL = torch.zeros(len(ids), len(ids)).masked_fill(~visible_LL, torch.finfo(torch.float32).min)
    output = base.model(inputs_embeds=torch.stack(rows)[None], attention_mask=mask_LL[None, None], use_cache=False)
    return output.last_hidden_state[0]


@torch.no_grad()
def predicted_without_cache(model: GameModel, prompt: TokenPrompt, shift: int) -> tuple[Tensor, State]:
    base = model.language_model.get_base_model()
    more: list[int] = []
    chosen = []
    for slot, legal in enumerate(LEGAL_IDS):
        logits_V = base.lm_head(states_without_cache(model, prompt, more)[-1])
        chosen.append(max(legal, key=lambda one: float(logits_V[one])))
        more += [
            chosen[-1],
            *([ID["</ML>"], ID["<SC>"]], [ID["</SC>"], ID["<ET>"]], [ID["</ET>"], ID["<ST>"]], [])[slot],
        ]
    first = int(prompt.query_mask_L.nonzero()[0]) + shift
    states_LH = states_without_cache(model, prompt, [])[first : first + SHOT]
    return model.output_resampler(states_LH), State(*(one - 32267 for one in chosen))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("shift", [0, 3])
def test_one_pass_with_a_cache_predicts_the_same_as_whole_passes(attention: str, shift: int) -> None:
    model = shared_model(attention, shift)
    seen = set()
    for turn in range(4):
        prompt = prompt_of(f"Qiqi runs {turn} times", *(past_turn(one) for one in range(turn % 3)))
        prediction = model.predict(prompt)
        shot_tokens_LD, state = predicted_without_cache(model, prompt, shift)
        torch.testing.assert_close(prediction.shot_tokens_LD, shot_tokens_LD, atol=1e-4, rtol=1e-4)
        assert prediction.state == state
        seen.add(state)
    assert len(seen) > 1, "the prompts all lead to one state, so the comparison says little"


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_prompt_longer_than_the_sliding_window_is_read_the_same_with_a_cache(attention: str) -> None:
    model = small_model(attention, window=20)
    for turn in range(4):
        prompt = prompt_of(f"Qiqi runs {turn} times", past_turn(1), past_turn(2))
        assert len(prompt.ids_L) > 60
        shot_tokens_LD, state = predicted_without_cache(model, prompt, 0)
        prediction = model.predict(prompt)
        torch.testing.assert_close(prediction.shot_tokens_LD, shot_tokens_LD, atol=1e-4, rtol=1e-4)
        assert prediction.state == state


def test_the_released_shift_reads_past_the_last_query() -> None:
    prompt = prompt_of("Qiqi runs")
    states_LH = states_without_cache(model := shared_model(shift=3), prompt, [])
    tail = [mistral_tokenizer().convert_ids_to_tokens(int(one)) for one in prompt.ids_L[-SHOT:]]
    assert tail == ["<frame_00003>", "<frame_00004>", "<frame_00005>", "</frame>", "</img>", "<ML>"]
    expected_LD = model.output_resampler(states_LH[-SHOT:])
    torch.testing.assert_close(model.predict(prompt).shot_tokens_LD, expected_LD.detach(), atol=1e-4, rtol=1e-4)


def test_queries_of_the_turn_to_predict_see_one_another() -> None:
    model, first_query = small_model(), 32000
    prompt = prompt_of("Qiqi runs", past_turn(1))
    before = model.predict(prompt).shot_tokens_LD
    with torch.no_grad():
        model.language_model.get_base_model().model.embed_tokens.weight[first_query + SHOT - 1] += 1
    after = model.predict(prompt).shot_tokens_LD
    assert (after - before).abs().amax(1).min() > 1e-3, "a change of the last query reaches every query"


def test_the_trained_copy_of_the_last_norm_is_used() -> None:
    model, prompt = small_model(), prompt_of("Qiqi runs")
    norm, before = (
        model.language_model.get_base_model().model.norm,
        model.predict(prompt_of("Qiqi runs")).shot_tokens_LD,
    )
    with torch.no_grad():
        norm.original_module.weight.fill_(7)
        assert torch.equal(model.predict(prompt).shot_tokens_LD, before)
        norm.modules_to_save["default"].weight.zero_()
    expected_D = model.output_resampler(torch.zeros(HIDDEN)).detach()
    torch.testing.assert_close(model.predict(prompt).shot_tokens_LD, expected_D.expand(SHOT, -1))


def test_shots_words_and_order_of_the_history_matter() -> None:
    model = shared_model()
    games = (
        [],
        [past_turn(1)],
        [past_turn(2)],
        [past_turn(1, "Qiqi eats")],
        [past_turn(1), past_turn(2)],
        [past_turn(2), past_turn(1)],
    )
    shots = [model.predict(prompt_of("Qiqi runs", *past)).shot_tokens_LD for past in games]
    for one in range(len(shots)):
        for other in range(one):
            assert (shots[one] - shots[other]).abs().max() > 1e-3, (one, other)


@pytest.mark.parametrize("spoil", ["illegal", "nan", "inf"])
def test_a_predicted_state_is_legal_for_any_weights(spoil: str) -> None:
    model = small_model()
    head = model.language_model.get_base_model().lm_head.weight
    legal = sorted({one for slot in LEGAL_IDS for one in slot})
    with torch.no_grad():
        if spoil == "illegal":  # every other token is far more likely, for any direction of the state
            head *= 1000
            head[legal] = 0
        else:
            head.fill_(float(spoil))
    state = model.predict(prompt_of("</ML><Strength_-5>", past_turn(1))).state
    assert State.from_ids(state.ids) == state


def test_predictions_are_repeatable_and_their_tensors_trainable() -> None:
    model, prompt = shared_model(), prompt_of("Qiqi runs", past_turn(1))
    first, second = model.predict(prompt), model.predict(prompt)
    assert torch.equal(first.shot_tokens_LD, second.shot_tokens_LD)
    assert first.state == second.state
    assert not first.shot_tokens_LD.requires_grad
    assert not first.shot_tokens_LD.is_inference()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padding_a_batch_changes_no_prompt_in_it(attention: str) -> None:
    model = shared_model(attention)
    prompts = [
        prompt_of("Qiqi runs", past_turn(1), past_turn(2), target=STATE),
        prompt_of("Qiqi", target=State(5, 0, 1, 1)),
        prompt_of("Qiqi flies over the sea at night", past_turn(3), target=STATE),
    ]
    together = model(prompts)
    assert together.shot_tokens_BLD.shape == (3, SHOT, WIDTH)
    assert together.state_logits_B4V.shape == (3, 4, VOCABULARY)
    for row, prompt in enumerate(prompts):
        alone = model([prompt])
        torch.testing.assert_close(together.shot_tokens_BLD[row], alone.shot_tokens_BLD[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(together.state_logits_B4V[row], alone.state_logits_B4V[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shift", [0, 3])
def test_training_and_play_compute_the_same(shift: int) -> None:
    model, past = shared_model(shift=shift), (past_turn(1), past_turn(2))
    prediction = model.predict(prompt_of("Qiqi runs", *past))
    output = model([prompt_of("Qiqi runs", *past, target=prediction.state)])
    torch.testing.assert_close(output.shot_tokens_BLD[0], prediction.shot_tokens_LD, atol=1e-4, rtol=1e-4)
    best = [
        legal[int(row_V[list(legal)].argmax())]
        for row_V, legal in zip(output.state_logits_B4V[0], LEGAL_IDS, strict=True)
    ]
    assert State.from_ids(best) == prediction.state


def test_state_logits_are_those_before_each_value() -> None:
    model, prompt = shared_model(), prompt_of("Qiqi runs", past_turn(1), target=STATE)
    states_LH = states_without_cache(model, prompt, [])
    before = [
        place
        for place, one in enumerate(prompt.ids_L.tolist())
        if one in (ID["<ML>"], ID["<SC>"], ID["<ET>"], ID["<ST>"])
    ]
    expected_4V = model.language_model.get_base_model().lm_head(states_LH[before[-4:]])
    torch.testing.assert_close(model([prompt]).state_logits_B4V[0], expected_4V, atol=1e-4, rtol=1e-4)


def test_the_state_to_learn_does_not_reach_the_shot() -> None:
    model = shared_model(shift=3)
    one, other = (model([prompt_of("Qiqi", target=State(*values))]) for values in ((1, 0, 0, -1), (5, 1, 1, 1)))
    assert torch.equal(one.shot_tokens_BLD, other.shot_tokens_BLD)
    assert torch.equal(one.state_logits_B4V[:, 0], other.state_logits_B4V[:, 0])
    assert not torch.equal(one.state_logits_B4V[:, 1], other.state_logits_B4V[:, 1])


def test_prompts_of_the_wrong_kind_are_refused() -> None:
    model = shared_model()
    with pytest.raises(ValueError, match="training needs prompts with a target"):
        model([prompt_of("Qiqi", target=STATE), prompt_of("Qiqi")])
    with pytest.raises(ValueError, match="has no target"):
        model.predict(prompt_of("Qiqi", target=STATE))


@pytest.mark.parametrize("past", [0, 1])
def test_every_trained_parameter_gets_a_gradient_and_no_other(past: int) -> None:
    model = small_model()
    output = model([prompt_of("Qiqi runs", *(past_turn(one) for one in range(past)), target=STATE)])
    (output.shot_tokens_BLD.square().mean() + output.state_logits_B4V.logsumexp(-1).mean()).backward()
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


def test_resamplers_may_stay_in_full_precision() -> None:
    model, prompt = small_model(), prompt_of("Qiqi runs", past_turn(1))
    expected = model.predict(prompt).shot_tokens_LD
    model.language_model.to(torch.bfloat16)
    result = model.predict(prompt).shot_tokens_LD
    assert result.dtype == torch.float32
    assert nn.functional.cosine_similarity(result, expected, dim=1).min() > 0.98


def test_half_precision_base_trains_under_autocast() -> None:
    model = small_model()
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    prompt = prompt_of("Qiqi runs", past_turn(1), target=STATE)
    with torch.autocast("cpu", torch.bfloat16):
        output = model([prompt])
    output.shot_tokens_BLD.float().square().mean().backward()
    grads = [one.grad for one in model.parameters() if one.requires_grad and one.grad is not None]
    assert all(one.isfinite().all() and one.dtype == torch.float32 for one in grads)


def test_resamplers_are_two_linear_layers_around_an_exact_gelu() -> None:
    model = shared_model()
    for resampler in (model.input_resampler, model.output_resampler):
        first, between, last = resampler
        assert isinstance(between, nn.GELU)
        x = torch.randn(2, first.in_features)
        hidden = x @ first.weight.T + first.bias
        exact = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
        torch.testing.assert_close(resampler(x), exact @ last.weight.T + last.bias, atol=1e-4, rtol=1e-4)
