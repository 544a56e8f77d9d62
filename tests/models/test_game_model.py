"""Game model, against explicit passes over the whole sequence, position by position.

Shapes: B batch, L positions or shot tokens, D width of a shot token, H of the language model, V vocabulary.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.game_model import GameModel
from models.prompt_batch import PromptBatch
from models.tokens import LEGAL_IDS, VOCABULARY, State, TokenPrompt
from tests.support.networks.small_game_model import (
    HIDDEN,
    SHOT,
    STATE,
    WIDTH,
    past_turn,
    prompt_of,
    shared_model,
    small_model,
)

ID = {"<ML>": 32274, "</ML>": 32275, "<SC>": 32276, "</SC>": 32277, "<ET>": 32278, "</ET>": 32279, "<ST>": 32280}
ATTENTIONS = pytest.mark.parametrize("attention", ["sdpa", "eager"])


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


def test_merged_adapters_predict_the_same() -> None:
    apart, merged = shared_model(), small_model()
    merged.merge_adapters()
    assert not [name for name, _ in merged.named_modules() if "lora" in name or "modules_to_save" in name]
    for turn in range(4):
        prompt = prompt_of(f"Qiqi runs {turn} times", past_turn(turn))
        prediction, expected = merged.predict(prompt), apart.predict(prompt)
        torch.testing.assert_close(prediction.shot_tokens_LD, expected.shot_tokens_LD, atol=1e-4, rtol=1e-4)
        assert prediction.state == expected.state


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


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padding_a_batch_changes_no_prompt_in_it(attention: str) -> None:
    model = shared_model(attention)
    prompts = [
        prompt_of("Qiqi runs", past_turn(1), past_turn(2), target=STATE),
        prompt_of("Qiqi", target=State(5, 0, 1, 1)),
        prompt_of("Qiqi flies over the sea at night", past_turn(3), target=STATE),
    ]
    together = model(PromptBatch.of(prompts))
    assert together.shot_tokens_NLD.shape == (3, SHOT, WIDTH)
    assert together.state_logits_N4V.shape == (3, 4, VOCABULARY)
    for row, prompt in enumerate(prompts):
        alone = model(PromptBatch.of([prompt]))
        torch.testing.assert_close(together.shot_tokens_NLD[row], alone.shot_tokens_NLD[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(together.state_logits_N4V[row], alone.state_logits_N4V[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shift", [0, 3])
def test_training_and_play_compute_the_same(shift: int) -> None:
    model, past = shared_model(shift=shift), (past_turn(1), past_turn(2))
    prediction = model.predict(prompt_of("Qiqi runs", *past))
    output = model(PromptBatch.of([prompt_of("Qiqi runs", *past, target=prediction.state)]))
    torch.testing.assert_close(output.shot_tokens_NLD[0], prediction.shot_tokens_LD, atol=1e-4, rtol=1e-4)
    best = [
        legal[int(row_V[list(legal)].argmax())]
        for row_V, legal in zip(output.state_logits_N4V[0], LEGAL_IDS, strict=True)
    ]
    assert State.from_ids(best) == prediction.state


def test_the_state_to_learn_does_not_reach_the_shot() -> None:
    model = shared_model(shift=3)
    prompts = (prompt_of("Qiqi", target=State(*values)) for values in ((1, 0, 0, -1), (5, 1, 1, 1)))
    one, other = (model(PromptBatch.of([prompt])) for prompt in prompts)
    assert torch.equal(one.shot_tokens_NLD, other.shot_tokens_NLD)
    assert torch.equal(one.state_logits_N4V[:, 0], other.state_logits_N4V[:, 0])
    assert not torch.equal(one.state_logits_N4V[:, 1], other.state_logits_N4V[:, 1])


def test_prompts_of_the_wrong_kind_are_refused() -> None:
    model = shared_model()
    with pytest.raises(ValueError, match="training needs prompts with a target"):
        model(PromptBatch.of([prompt_of("Qiqi", target=STATE), prompt_of("Qiqi")]))
    with pytest.raises(ValueError, match="has no target"):
        model.predict(prompt_of("Qiqi", target=STATE))
