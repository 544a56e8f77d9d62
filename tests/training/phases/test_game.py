"""Training of the game model: packed windows, and a past that the model predicts itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

from models.config import Conventions, tiny_config
from models.prompt_batch import PromptBatch
from models.tokens import PastTurn, State, TokenPrompt, write_packed_prompt, write_prompt
from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.small_game_model import (
    SHOT,
    WIDTH,
    mistral_tokenizer,
    past_turn,
    small_model,
)
from training.config import WindowSettings
from training.data.feature_cache import Feature, FeatureCache
from training.data.order import Position
from training.data.shards import open_shards
from training.data.turns import Catalog
from training.data.windows import Windows
from training.phases.game import GameBatch, GameExamples, GameTraining


def film_of(turns: int) -> list[PastTurn]:
    """Turns of different lengths and states, one of them with an unknown value."""
    made = [past_turn(each, f"Qiqi runs {'on ' * each}") for each in range(turns)]
    states = [State(each % 5 + 1, each % 2, 0, (-1) ** each) for each in range(turns)]
    known = [(True, each != 1, True, True) for each in range(turns)]
    return [replace(*each[:1], state=each[1], measured=each[2]) for each in zip(made, states, known, strict=True)]


def batch_of(prompts: list[TokenPrompt], turns: list[PastTurn], *own_past: bool) -> GameBatch:
    """Prompts with the targets of these turns, all after the recorded past unless `own_past` tells for each."""
    return GameBatch(
        PromptBatch.of(prompts),
        torch.stack([turn.shot_tokens_LD for turn in turns]),
        torch.tensor([turn.state.ids for turn in turns]),
        torch.tensor([turn.measured for turn in turns]),
        torch.tensor([turns for prompt in prompts for turns in range(1, len(prompt.targets) + 1)]),
        torch.tensor(own_past or [False] * len(prompts)),
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("shift", "doubled", "sliding"), [(0, False, 4096), (3, True, 4096), (0, False, 40)])
def test_the_loss_of_packed_windows_is_the_mean_of_their_nested_windows(
    attention: str, shift: int, doubled: bool, sliding: int
) -> None:
    model = small_model(attention, shift, sliding)
    network = GameTraining(model, 1.0, 0.5).eval()
    conventions, tokenizer = Conventions(readout_shift=shift, doubled_end_tag=doubled), mistral_tokenizer()
    films = [film_of(5), film_of(3)]  # the shorter one is padded
    packed = [write_packed_prompt(tokenizer, film, SHOT, conventions) for film in films]
    terms = network(batch_of(packed, films[0] + films[1]))
    nested = []
    for film in films:
        prompts = [
            write_prompt(tokenizer, film[:at], turn.instruction, SHOT, conventions, turn.state, turn.measured)
            for at, turn in enumerate(film)
        ]
        nested.append(network(batch_of(prompts, film)))
    for name, values_B in terms.items():
        means_B = torch.stack([each[name].mean() for each in nested])
        torch.testing.assert_close(values_B, means_B, atol=1e-5, rtol=1e-5)
    # and so are the gradients
    terms["loss"].sum().backward()
    gradients = {name: each.grad.clone() for name, each in network.named_parameters() if each.grad is not None}
    network.zero_grad()
    sum(each["loss"].mean() for each in nested).backward()
    for name, each in network.named_parameters():
        if each.grad is not None:
            torch.testing.assert_close(gradients[name], each.grad, atol=1e-4, rtol=1e-3)


def test_training_reports_the_loss_by_level_and_by_number_of_turns() -> None:
    network = GameTraining(small_model(), 1.0, 0.5, most_turns=5)
    film = film_of(5)
    packed = [write_packed_prompt(mistral_tokenizer(), film, SHOT, Conventions())]
    terms = {name: value.detach() for name, value in network.train()(batch_of(packed, film)).items()}
    for kinds in (["1_turns", "2_turns", "3_turns", "4_turns", "5_turns"], [f"level_{level}" for level in range(1, 6)]):
        assert sum(float(terms[f"share/{kind}"]) for kind in kinds) == pytest.approx(1)
        assert sum(float(terms[f"loss/{kind}"]) for kind in kinds) == pytest.approx(float(terms["loss"]))
    assert not any("/" in name for name in network.eval()(batch_of(packed, film)))


def written(*films: list[PastTurn]) -> list[TokenPrompt]:
    return [write_packed_prompt(mistral_tokenizer(), film, SHOT, Conventions()) for film in films]


def test_a_window_learns_from_the_models_own_predictions_if_it_is_drawn() -> None:
    model, films = small_model(), [film_of(4), film_of(1), film_of(3)]
    turns = [turn for film in films for turn in film]
    plain, network = (GameTraining(model, 1.0, 0.5, predicts_past=own).train() for own in (False, True))
    with torch.no_grad():
        shots_NLD = model(PromptBatch.of(written(*films))).shot_tokens_NLD
        recorded, found = plain(batch_of(written(*films), turns)), network(batch_of(written(*films), turns))
        mixed = network(batch_of(written(*films), turns, True, True, False))
        # the same, written by hand: predicted shot tokens in the past, recorded ones as targets
        predicted = [replace(turn, shot_tokens_LD=shot) for turn, shot in zip(turns, shots_NLD, strict=True)]
        expected = plain(batch_of(written(predicted[:4], films[1], films[2]), turns))
    torch.testing.assert_close(found["loss"], recorded["loss"])
    torch.testing.assert_close(mixed["loss"], expected["loss"])
    assert not torch.isclose(mixed["loss"][0], recorded["loss"][0], rtol=1e-3)


def test_validation_keeps_the_recorded_past() -> None:
    network, film = GameTraining(small_model(), 1.0, 0.5, predicts_past=True).eval(), film_of(4)
    assert torch.equal(
        network(batch_of(written(film), film, True))["loss"], network(batch_of(written(film), film))["loss"]
    )


def test_the_pass_that_predicts_the_past_takes_no_gradient_from_the_next() -> None:
    gradients = []
    for own in (False, True):  # autocast kept the weights of a pass without gradients in its cache once
        network = GameTraining(small_model(), 1.0, 0.5, predicts_past=own).train()
        with torch.autocast("cpu", torch.bfloat16):
            network(batch_of(written(film_of(4)), film_of(4)))["loss"].sum().backward()
        gradients.append({name: each.grad for name, each in network.named_parameters() if each.requires_grad})
    for name, gradient in gradients[0].items():
        assert gradient is not None
        torch.testing.assert_close(gradients[1][name], gradient)


def test_the_share_of_windows_with_an_own_past_is_a_function_of_seed_and_position(tmp_path: Path) -> None:
    write_shards(make_dataset(tmp_path, scenes=4, clips=3, captioner=MODEL), ShardSettings(samples=4, val_share=0))
    catalog = Catalog.read(open_shards(tmp_path, "train"))
    cache = FeatureCache(tmp_path / "features", catalog, [Feature("shot_tokens", (SHOT, WIDTH), torch.float32, {})])
    cache.fill_from_turns("shot_tokens", lambda turns: torch.zeros(len(turns), SHOT, WIDTH), batch_size=5)

    def drawn(own_past: float, seed: int = 0) -> list[bool]:
        windows = Windows(catalog.turns, WindowSettings(packed=True), seed)
        examples = GameExamples(windows, cache, mistral_tokenizer(), tiny_config(), own_past=own_past)
        return [examples[Position(epoch, item)].own_past for epoch in range(20) for item in range(len(windows))]

    assert 0.25 < fmean(drawn(0.3)) < 0.35
    assert drawn(0.3) == drawn(0.3) != drawn(0.3, seed=1)
    assert all(drawn(1.0))
    assert not any(drawn(0.0))
