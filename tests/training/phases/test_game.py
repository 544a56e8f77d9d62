"""Training of the game model with a noisy past: the noise level is an input of training alone."""

from __future__ import annotations

import pytest
import torch

from tests.support.networks.small_game_model import SHOT, STATE, WIDTH, past_turn, prompt_of, small_model
from training.data.windows import NOISE_LEVELS
from training.phases.game import GameBatch, GameTraining


def batch(*noise_levels: int, past: int = 2) -> GameBatch:
    """Equal prompts with the same past, each with a noise level."""
    prompt = prompt_of("Qiqi runs", *map(past_turn, range(past)), target=STATE)
    count = len(noise_levels)
    return GameBatch(
        (prompt,) * count,
        torch.zeros(count, SHOT, WIDTH),
        torch.tensor([STATE.ids] * count),
        torch.ones(count, 4, dtype=torch.bool),
        torch.tensor(noise_levels),
    )


@pytest.fixture(scope="module")
def training() -> GameTraining:
    network = GameTraining(small_model(), 1.0, 0.0, noisy=True).eval()
    assert network.noise_vectors is not None
    with torch.no_grad():
        network.noise_vectors.weight[1:] = torch.randn(
            NOISE_LEVELS - 1, WIDTH, generator=torch.Generator().manual_seed(1)
        )
    return network


def test_the_network_sees_the_noise_level_and_the_lowest_is_that_of_play(training: GameTraining) -> None:
    plain = GameTraining(training.game_model, 1.0, 0.0).eval()
    losses = training(batch(0, 1, 9))["loss"]
    assert losses[0] == plain(batch(0))["loss"][0]
    assert len({round(loss, 6) for loss in losses.tolist()}) == 3


def test_without_past_turns_the_level_changes_nothing_but_has_a_gradient(training: GameTraining) -> None:
    losses = training(batch(0, 5, past=0))["loss"]
    assert losses[0] == losses[1]
    losses.sum().backward()
    assert training.noise_vectors is not None
    gradient = training.noise_vectors.weight.grad
    assert gradient is not None  # data-parallel training needs one in every step
    assert not gradient.any()


def test_training_moves_the_vectors_of_the_drawn_levels_and_never_the_lowest(training: GameTraining) -> None:
    training.zero_grad()
    training(batch(0, 3))["loss"].sum().backward()
    assert training.noise_vectors is not None
    gradient = training.noise_vectors.weight.grad
    assert gradient is not None
    assert gradient.any(dim=1).tolist() == [level == 3 for level in range(NOISE_LEVELS)]
