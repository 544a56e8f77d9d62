"""Training of the game model: packed windows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from models.config import Conventions
from models.prompt_batch import PromptBatch
from models.tokens import PastTurn, State, TokenPrompt, write_packed_prompt, write_prompt
from tests.support.networks.small_game_model import (
    SHOT,
    mistral_tokenizer,
    past_turn,
    small_model,
)
from training.phases.game import GameBatch, GameTraining


def film_of(turns: int) -> list[PastTurn]:
    """Turns of different lengths and states, one of them with an unknown value."""
    made = [past_turn(each, f"Qiqi runs {'on ' * each}") for each in range(turns)]
    states = [State(each % 5 + 1, each % 2, 0, (-1) ** each) for each in range(turns)]
    known = [(True, each != 1, True, True) for each in range(turns)]
    return [replace(*each[:1], state=each[1], measured=each[2]) for each in zip(made, states, known, strict=True)]


def batch_of(prompts: list[TokenPrompt], turns: list[PastTurn]) -> GameBatch:
    """Prompts with the targets of these turns."""
    return GameBatch(
        PromptBatch.of(prompts),
        torch.stack([turn.shot_tokens_LD for turn in turns]),
        torch.tensor([turn.state.ids for turn in turns]),
        torch.tensor([turn.measured for turn in turns]),
        torch.tensor([turns for prompt in prompts for turns in range(1, len(prompt.targets) + 1)]),
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
