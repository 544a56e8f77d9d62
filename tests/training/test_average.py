"""Moving average of weights: its numbers, its way into the weights and out again, its state."""

from __future__ import annotations

import pytest
import torch
from diffusers.training_utils import EMAModel
from torch import nn

from training.optimizer import MovingAverage


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(4))]


def move(trained: list[nn.Parameter], by: float) -> None:
    with torch.no_grad():
        for parameter in trained:
            parameter += by


@pytest.mark.parametrize("on_cpu", [False, True])
def test_it_is_the_average_of_diffusers(on_cpu: bool) -> None:
    trained = parameters()
    ours, theirs = MovingAverage(trained, 0.9, on_cpu=on_cpu), EMAModel(trained, decay=0.9)
    for step in range(120):  # from step 81 on the decay is 0.9
        move(trained, step % 7 - 2.5)
        ours.step()
        theirs.step(trained)
    for one, other in zip(ours.means, theirs.shadow_params, strict=True):
        torch.testing.assert_close(one, other)


def test_the_average_takes_the_place_of_the_weights_for_a_while() -> None:
    trained = parameters()
    before = [parameter.detach().clone() for parameter in trained]
    average = MovingAverage(trained, 0.5)
    average.step()
    move(trained, 1.0)
    average.step()
    with average.in_place():
        for parameter, mean, start in zip(trained, average.means, before, strict=True):
            assert torch.equal(parameter, mean)
            torch.testing.assert_close(parameter.detach(), start + 9 / 11)  # d_2 = 2 / 11
    for parameter, start in zip(trained, before, strict=True):
        assert torch.equal(parameter, start + 1)


def test_it_continues_from_its_state_to_the_bit() -> None:
    trained = parameters()
    whole = MovingAverage(trained, 0.99)
    for _ in range(3):
        move(trained, 0.3)
        whole.step()
    resumed = MovingAverage(trained, 0.99, on_cpu=True)
    resumed.load({name: mean.clone() for name, mean in whole.state().items()}, 3)
    for average in (whole, resumed):
        average.step()
    assert all(map(torch.equal, whole.means, resumed.means))
