"""Optimizer: its settings, the parameters it decays, its learning rates, the moving average of the weights."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from diffusers.training_utils import EMAModel
from torch import nn

from models.checkpoint import Checkpoint
from models.game_model import make_trainable
from models.shot_decoder import unfreeze_for_joint
from tests.support.networks.tiny_models import tiny_checkpoint
from training.config import LoopSettings
from training.learner import Learner
from training.optimizer import MovingAverage, Pace, Paced, learning_rate, make_optimizer, parameter_groups
from training.processes import new_accelerator


def loop(**changes: Any) -> LoopSettings:
    return LoopSettings.model_validate({"steps": 20, "batch_size": 1, "learning_rate": 0.05, **changes})


class Networks(nn.Module):
    """Shot encoder, shot decoder and game model, with everything that joint training and phase b train."""

    def __init__(self) -> None:
        super().__init__()
        checkpoint = Checkpoint.open(tiny_checkpoint())
        self.encoder, self.decoder = checkpoint.shot_encoder(), checkpoint.shot_decoder()
        unfreeze_for_joint(self.encoder, self.decoder)
        self.game_model = checkpoint.game_model()
        make_trainable(self.game_model.language_model)
        for resampler in (self.game_model.input_resampler, self.game_model.output_resampler):
            resampler.requires_grad_(True)


def test_norms_adaln_biases_and_embeddings_are_not_decayed() -> None:
    networks = Networks()
    decayed, others = parameter_groups(networks, loop(weight_decay=0.1))
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in networks.named_parameters()}
    first, second = ({names[id(parameter)] for parameter in group["params"]} for group in (decayed, others))
    trained = {name for name, parameter in networks.named_parameters() if parameter.requires_grad}
    assert first | second == trained
    assert not first & second
    block = "decoder.transformer_blocks.0"
    mistral = "game_model.language_model.base_model.model"
    assert {
        f"{block}.attn1.to_q.lora_A.default.weight",
        "decoder.time_embedding.motion.linear_1.weight",
        f"{mistral}.model.layers.0.self_attn.q_proj.lora_B.default.weight",
        "game_model.input_resampler.0.weight",
    } <= first
    assert {
        f"{block}.norm1.linear.weight",
        f"{block}.norm2.linear.weight",
        "decoder.time_embedding.motion.linear_1.bias",
        f"{mistral}.model.embed_tokens.weight",
        f"{mistral}.lm_head.weight",
        "game_model.input_resampler.0.bias",
    } <= second
    assert any(name.startswith("encoder.") for name in first)


class Pair(Paced):
    """Network with a part that learns in each third step, and one that learns three times as fast."""

    def __init__(self) -> None:
        super().__init__()
        self.slow, self.fast, self.frozen = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.paces = {"slow": Pace(every=3), "fast": Pace(rate=3.0)}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_parts_learn_at_their_own_paces(optimizer: str) -> None:
    torch.manual_seed(0)
    pair = Pair()
    learner = Learner(pair, (), loop(optimizer=optimizer, weight_decay=0.1), new_accelerator())
    moved: dict[str, list[float]] = {"slow": [], "fast": []}
    states = []
    for step in range(6):
        for parameter in pair.parameters():
            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        before = {part: getattr(pair, part).bias.detach().clone() for part in moved}
        learner.update(0.1, skipped=False, step=step)
        for part, distances in moved.items():
            distances.append(float((getattr(pair, part).bias - before[part]).abs().max().detach()))
        states.append(float(learner.optimizer.state[pair.slow.bias]["step"]))
    assert moved["slow"] == pytest.approx([0.1, 0, 0, 0.1, 0, 0], abs=1e-4)
    assert moved["fast"] == pytest.approx([0.3] * 6, rel=1e-3)
    assert states == [1, 1, 1, 2, 2, 2]  # its averages rest too


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_state_before_the_first_update_of_a_part_has_its_moments(optimizer: str) -> None:
    pair = Pair()
    learner = Learner(pair, (), loop(optimizer=optimizer), new_accelerator())
    before = {name: each.detach().clone() for name, each in pair.named_parameters()}
    learner.update(0.1, skipped=True, step=0)  # the gradient of the only step that teaches the slow part is not finite
    for parameter in pair.fast.parameters():
        parameter.grad = torch.ones_like(parameter)
    learner.update(0.1, skipped=False, step=1)
    fresh = Learner(Pair(), (), loop(optimizer=optimizer), new_accelerator())
    moments, new = (each.state()["optimizer"]["state"] for each in (learner, fresh))
    assert {name: float(each["step"]) for name, each in moments.items()} == {
        **dict.fromkeys(("slow.weight", "slow.bias"), 0),
        **dict.fromkeys(("fast.weight", "fast.bias"), 1),
    }
    assert {name: each.keys() for name, each in moments.items()} == {name: each.keys() for name, each in new.items()}
    moved = {name for name, each in pair.named_parameters() if not torch.equal(each, before[name])}
    assert moved == {"fast.weight", "fast.bias"}


def test_the_gradient_of_each_part_is_clipped_by_its_own_norm() -> None:
    pair = Pair()
    learner = Learner(pair, (), loop(), new_accelerator())
    for part, size in (("slow", 100.0), ("fast", 0.01)):
        for parameter in getattr(pair, part).parameters():
            parameter.grad = size * torch.ones_like(parameter)
    norm = learner.clip(1.0)
    assert norm == pytest.approx(100.0 * 12**0.5, rel=1e-4)
    assert float(pair.slow.bias.grad[0]) == pytest.approx(12**-0.5, rel=1e-3)
    assert float(pair.fast.bias.grad[0]) == pytest.approx(0.01)


def test_muon_moves_a_matrix_alike_in_all_directions_and_adamw_the_rest() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv3d(6, 8, (1, 2, 2)), nn.LayerNorm(8))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    optimizer = make_optimizer(network, loop(optimizer="muon", learning_rate=0.1, weight_decay=0.0))
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter) * 10.0 ** torch.arange(parameter.shape[-1])
    optimizer.step()
    moved, *others = (old - new.detach() for old, new in zip(before, network.parameters(), strict=True))
    step = torch.linalg.svdvals(moved.flatten(1)) / (0.1 * 0.2 * 24**0.5)  # rows and columns: 8 and 6 * 2 * 2
    assert step.min() > 0.6
    assert step.max() < 1.3
    for change in others:
        torch.testing.assert_close(change.abs(), torch.full_like(change, 0.1))  # AdamW's first step is the rate itself


def layers() -> list[nn.Module]:
    """Matrices, convolutions and a norm; the last three are too thin for Muon's step."""
    thick = [nn.Conv2d(3, 8, 2), nn.LayerNorm(8), nn.Linear(8, 4)]
    return [*thick, nn.Linear(4, 3), nn.Linear(3, 1), nn.Linear(800, 5)]


@pytest.mark.parametrize("fused", [False, True])
def test_muon_takes_the_steps_of_timm(fused: bool) -> None:
    from timm.optim.muon import Muon as TimmMuon  # takes a second

    torch.manual_seed(0)
    networks = [nn.Sequential(*layers()) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    settings = loop(optimizer="muon", weight_decay=0.1, betas=(0.8, 0.9), epsilon=1e-3)
    ours = make_optimizer(networks[0], settings, fused=fused)
    groups = parameter_groups(networks[1], settings)
    theirs = TimmMuon(
        [{**group, "use_fallback": not group["orthogonal"]} for group in groups], lr=0.05, betas=(0.8, 0.9), eps=1e-3
    )
    for _ in range(3):
        gradients = [torch.randn_like(parameter) for parameter in networks[0].parameters()]
        for network in networks:
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter.grad = gradient.clone()
        ours.step()
        theirs.step()
    for own, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=0.0, atol=2e-3)  # timm's iteration is in bf16; a step is of .05


def test_muon_goes_on_from_a_saved_state() -> None:
    torch.manual_seed(0)
    network, again = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer, resumed = (make_optimizer(each, loop(optimizer="muon")) for each in (network, again))

    def move(each: nn.Module, by: torch.optim.Optimizer, seed: int) -> None:
        for parameter in each.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
        by.step()

    move(network, optimizer, seed=1)
    again.load_state_dict(network.state_dict())
    resumed.load_state_dict(deepcopy(optimizer.state_dict()))  # it would share the momentum
    for each, by in ((network, optimizer), (again, resumed)):
        move(each, by, seed=2)
    for one, other in zip(network.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


def test_the_learning_rate_rises_and_falls_by_a_cosine() -> None:
    settings = loop(steps=110, rate_warm_up=10, learning_rate=1.0)
    assert learning_rate(settings, 0) == pytest.approx(1 / 11)
    assert learning_rate(settings, 10) == 1.0
    assert learning_rate(settings, 60) == pytest.approx(0.5)
    assert learning_rate(settings, 109) < 0.001
    assert learning_rate(loop(schedule="constant"), 19) == 0.05
    ends = loop(steps=110, rate_warm_up=10, learning_rate=2.0, minimum_rate=0.05)
    assert learning_rate(ends, 60) == pytest.approx(1.05)  # half-way from 2.0 to 0.1
    assert learning_rate(ends, 109) == pytest.approx(0.1, rel=0.01)


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(4))]


def move_all(trained: list[nn.Parameter], by: float) -> None:
    with torch.no_grad():
        for parameter in trained:
            parameter += by


@pytest.mark.parametrize("on_cpu", [False, True])
def test_the_moving_average_is_that_of_diffusers(on_cpu: bool) -> None:
    trained = parameters()
    ours, theirs = MovingAverage(trained, 0.9, on_cpu=on_cpu), EMAModel(trained, decay=0.9)
    for step in range(120):  # from step 81 on the decay is 0.9
        move_all(trained, step % 7 - 2.5)
        ours.step()
        theirs.step(trained)
    for one, other in zip(ours.means, theirs.shadow_params, strict=True):
        torch.testing.assert_close(one, other)


def test_the_moving_average_continues_from_its_state_to_the_bit() -> None:
    trained = parameters()
    whole = MovingAverage(trained, 0.99)
    for _ in range(3):
        move_all(trained, 0.3)
        whole.step()
    resumed = MovingAverage(trained, 0.99, on_cpu=True)
    resumed.load({name: mean.clone() for name, mean in whole.state().items()}, 3)
    for average in (whole, resumed):
        average.step()
    assert all(map(torch.equal, whole.means, resumed.means))
