"""Networks of distillation against the papers' formulas, and the traps of three networks with shared weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.diffusion import Guidance, clean, sample, timesteps_of
from models.shot_decoder import ShotDecoder, denoise, latent_shape, merge_lora
from tests.support.networks.tiny_models import brief_checkpoint, shake
from training.config import LoopSettings, Recipe
from training.learner import Learner
from training.phases.assembly import few_step_networks, guide_networks
from training.phases.condition import Condition
from training.phases.distill_networks import (
    FewStepNetworks,
    FewStepShot,
    FewStepShots,
    GuideNetworks,
    critic_of,
    matching_loss,
)
from training.phases.shot import NoisedShot, NoisedShots
from training.processes import new_accelerator
from training.recipes import merged, tiny


def decoder(seed: int = 1) -> ShotDecoder:
    found = Checkpoint.open(brief_checkpoint()).shot_decoder()
    shake(found, seed)
    return found


def config() -> ModelConfig:
    return Checkpoint.open(brief_checkpoint()).config


def recipe(**distill: Any) -> Recipe:
    return Recipe.model_validate(merged(tiny().model_dump(), {"distill": distill}))


def few_steps(**distill: Any) -> FewStepNetworks:
    networks = few_step_networks(recipe(**distill), config(), decoder(), decoder())
    return networks.train()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def shots(
    networks: FewStepNetworks, count: int = 2, *, steps: int = 2, teaches: bool = True, seed: int = 0
) -> FewStepShots:
    shape, shot = latent_shape(networks.student), config().shot_encoder
    return FewStepShots.of(
        [
            FewStepShot(
                drawn(*shape, seed=seed + each + 40),
                drawn(shot.shot_tokens, shot.width, seed=seed + each),
                5.0,
                drawn(steps, *shape, seed=seed + each + 10),
                drawn(*shape, seed=seed + each + 20),
                50 + (250 + 400 * each + 37 * seed) % 900,
                drawn(*shape, seed=seed + each + 30),
                50 + (650 + 400 * each + 53 * seed) % 900,
                teaches,
            )
            for each in range(count)
        ]
    )


def test_the_student_goes_by_the_distance_of_critic_and_teacher_in_units_of_the_teachers_error() -> None:
    student, fake, real = (drawn(2, 3, 4, 2, 2, seed=seed) for seed in range(3))
    student.requires_grad_(True)
    losses_B = matching_loss(student, fake, real)
    losses_B.sum().backward()  # type: ignore[no-untyped-call]
    x, f, r = (each.detach().double().numpy() for each in (student, fake, real))
    error = np.abs(x - r).mean(axis=(1, 2, 3, 4), keepdims=True)
    step = (f - r) / error
    np.testing.assert_allclose(losses_B.detach(), (step**2).mean(axis=(1, 2, 3, 4)) / 2, rtol=1e-4)
    assert student.grad is not None
    np.testing.assert_allclose(student.grad, step / x[0].size, rtol=1e-4, atol=1e-7)


def test_without_signal_the_clean_latents_are_finite() -> None:
    noise, velocity = drawn(1, 2, 3, 4, 4), 6e4 * drawn(1, 2, 3, 4, 4, seed=1)
    found = clean(noise.half(), velocity.half(), torch.tensor([999]))
    assert torch.equal(found, -velocity.half().float())


def shown(seed: int = 0) -> NoisedShots:
    """Three noised shots, whose shot tokens are always the same."""
    shape, shot = latent_shape(decoder()), config().shot_encoder
    tokens = drawn(3, shot.shot_tokens, shot.width)
    latents, noise = drawn(3, *shape, seed=seed + 1), drawn(3, *shape, seed=seed + 2)
    each = zip(latents, noise, (99, 500, 899), tokens, strict=True)
    return NoisedShots.of([NoisedShot(x, e, timestep, 5.0, (one,)) for x, e, timestep, one in each])


def guided(scale: float = 6.0) -> GuideNetworks:
    shot = config().shot_encoder
    absent_LD = drawn(shot.shot_tokens, shot.width, seed=9)
    return guide_networks(recipe(guidance=scale), config(), decoder(), decoder(), absent_LD).train()


def test_the_target_is_the_guided_velocity_of_the_sampler() -> None:
    networks, batch, teacher = guided(), shown(), decoder()
    seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def spy(latents: Tensor, tokens: Tensor, timesteps: Tensor, scopes: Tensor | None) -> Tensor:
        found = denoise(teacher, latents, tokens, timesteps, scopes)
        without, within = found.chunk(2)
        seen.append((latents[:1], timesteps[:1], without + 6 * (within - without)))
        return found

    tokens, scope = batch.conditions[0][:1], torch.tensor([5.0])
    options = {"steps": 4, "guidance": Guidance("constant", 6.0), "generator": torch.Generator().manual_seed(0)}
    sample(spy, latent_shape(teacher), tokens, networks.unconditional_LD[None], scope, **options)  # type: ignore[arg-type]
    for latents, timesteps, expected in seen:
        with torch.no_grad():
            found = networks.guided(Condition(tokens, scope, None), latents, timesteps)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_the_published_guidance_is_learned_at_the_timesteps_where_it_acts() -> None:
    released = config().replaced(conventions={"guidance": "published"}, sampling={"guided": (200, 800)})
    shot = released.shot_encoder
    networks = guide_networks(recipe(), released, decoder(), decoder(), torch.zeros(shot.shot_tokens, shot.width))
    assert networks.scales_t[[199, 801]].tolist() == [1, 1]
    assert networks.scales_t[459] == pytest.approx(Guidance("published", 6.0).at(459, 50))


def learn(networks: nn.Module, batches: Any, *, steps: int, rate: float) -> None:
    loop = LoopSettings(steps=steps, batch_size=1, learning_rate=rate, betas=(0.0, 0.999), weight_decay=0.0)
    learner = Learner(networks, (), loop, new_accelerator())
    for step in range(steps):
        learner.drop_gradients()
        networks(batches(step))["loss"].mean().backward()
        learner.clip(1.0)
        learner.update(rate, skipped=False, step=step)


def test_the_student_of_guidance_comes_nearer_to_the_guided_velocity() -> None:
    networks, held_out = guided(), shown(seed=1000)
    networks.student.requires_grad_(True)  # adapters of a random base learn too slowly for a test
    with torch.no_grad():
        before = float(networks(held_out)["loss"].mean())
    learn(networks, lambda step: shown(seed=3 * step), steps=20, rate=1e-3)
    with torch.no_grad():
        after = float(networks(held_out)["loss"].mean())
    assert after < 0.6 * before


def test_few_steps_are_drawn_in_training_as_in_play() -> None:
    networks = few_steps(denoising_steps=4).eval()
    batch, seed = shots(networks, 1), 3
    shape = latent_shape(networks.student)
    generator = torch.Generator().manual_seed(seed)
    noises = torch.stack([torch.randn(1, *shape, generator=generator) for _ in range(4)], dim=1)
    condition = batch.tokens_BLD, batch.scope_B
    called: list[int] = []

    def spy(latents: Tensor, tokens: Tensor, timesteps: Tensor, scopes: Tensor | None) -> Tensor:
        called.append(int(timesteps[0]))
        return denoise(networks.student, latents, tokens, timesteps, scopes)

    played = sample(
        spy, shape, condition[0], condition[0], condition[1],
        generator=torch.Generator().manual_seed(seed), steps=4, guidance=Guidance("constant", 1.0), sampler="renoise",
    )  # fmt: skip
    assert torch.equal(networks.drawn(Condition(*condition, None), noises), played)
    assert called == networks.timesteps == timesteps_of(4) == [999, 749, 499, 249]


def test_the_critic_begins_as_the_teacher_shares_its_weights_and_repeats_its_start() -> None:
    teacher = decoder()
    merge_lora(teacher)
    teacher.requires_grad_(False)
    critic = critic_of(teacher, config().shot_decoder, 8, seed=3)
    torch.rand(1)  # a resumed run has drawn other numbers before
    again = critic_of(teacher, config().shot_decoder, 8, seed=3)
    inputs = drawn(1, *latent_shape(teacher)), drawn(1, 80, 128), torch.tensor([500]), torch.tensor([5.0])
    with torch.no_grad():
        assert torch.equal(denoise(critic, *inputs), denoise(teacher, *inputs))
    own = {name for name, each in critic.named_parameters() if each.requires_grad}
    assert {name for name in own if "lora_" not in name} == set()
    assert any(name.startswith("proj_out.lora_") for name in own)
    frozen = {id(each) for each in critic.parameters() if not each.requires_grad}
    assert frozen == {id(each) for each in teacher.parameters()}
    trained = [dict(each.named_parameters()) for each in (critic, again)]
    assert all(torch.equal(trained[0][name], trained[1][name]) for name in own)


def gradients(networks: FewStepNetworks, batch: FewStepShots, part: str) -> Mapping[str, Tensor | None]:
    networks.zero_grad()
    networks(batch)[f"loss/{part}"].sum().backward()
    return {name: each.grad for name, each in networks.named_parameters() if each.requires_grad}


def test_each_loss_has_a_gradient_in_its_own_network_alone() -> None:
    networks = few_steps()
    shake(networks.critic, 5)  # it begins as the teacher, from which the student is nowhere apart
    batch = shots(networks)
    for part in ("student", "critic"):
        found = gradients(networks, batch, part)
        learning = {name for name, each in found.items() if each is not None and each.any()}
        assert learning
        assert {name.split(".")[0] for name in learning} == {part}


def test_the_adversarial_term_teaches_the_student_alone_and_its_judge_learns_from_recorded_latents() -> None:
    networks = few_steps(adversarial=0.03)
    batch = shots(networks)
    for part, learns in (("adversarial", "student"), ("judge", "judge")):
        found = gradients(networks, batch, part)
        assert {name.split(".")[0] for name, each in found.items() if each is not None and each.any()} == {learns}
    terms = networks(batch)
    added = terms["loss"] - terms["loss/critic"] - terms["loss/student"] - terms["loss/judge"]
    torch.testing.assert_close(added, 0.03 * terms["loss/adversarial"])
    assert "loss/judge" not in few_steps()(batch)
    judge, condition = networks.judge, Condition(batch.tokens_BLD, batch.scope_B, None)
    assert judge is not None
    assert len(judge.trunk.transformer_blocks) == (len(networks.teacher.transformer_blocks) + 1) // 2
    low, high = torch.full_like(batch.latents_BTCHW, -1.0), torch.full_like(batch.latents_BTCHW, 1.0)
    optimizer = torch.optim.AdamW([each for each in judge.parameters() if each.requires_grad], 1e-3)
    for _ in range(20):
        optimizer.zero_grad()
        judge.loss(condition, low, high, batch.critic_timesteps_B).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    drawn, recorded = (float(judge(condition, each, batch.critic_timesteps_B).mean().detach()) for each in (low, high))
    assert drawn < 0 < recorded


def test_only_steps_that_teach_it_cost_the_student_a_pass_with_a_gradient() -> None:
    networks = few_steps()
    terms = networks(shots(networks, teaches=False))
    terms["loss"].sum().backward()
    for parameter in networks.student.parameters():
        assert parameter.grad is None or not parameter.grad.any()
    assert all(each.grad is not None for each in networks.student.parameters() if each.requires_grad)  # for DDP
    assert terms["share/student"].tolist() == [0, 0]
    assert networks(shots(networks))["share/student"].tolist() == [1, 1]


def test_a_flat_critic_is_seen() -> None:
    networks = few_steps()
    assert networks(shots(networks))["loss/apart"].tolist() == [0, 0]
    shake(networks.critic, 5)
    assert networks(shots(networks))["loss/apart"].min() > 0


@pytest.mark.parametrize("part", ["student", "critic"])
def test_checkpointed_blocks_compute_again_with_their_own_adapters(part: str) -> None:
    found = []
    for checkpointing in (False, True):
        networks = few_steps(gradient_checkpointing=checkpointing)
        assert networks.student.is_gradient_checkpointing is checkpointing
        shake(networks.critic, 5)
        found.append(gradients(networks, shots(networks), part))
    for name, expected in found[0].items():
        if expected is not None and expected.any():
            torch.testing.assert_close(found[1][name], expected)


def test_weights_that_autocast_has_cast_without_a_gradient_get_one_afterwards() -> None:
    networks = few_steps()
    shake(networks.critic, 5)
    with torch.autocast("cpu", torch.bfloat16):
        terms = networks(shots(networks))
    terms["loss"].sum().backward()
    without = [
        name
        for name, each in networks.named_parameters()
        if each.requires_grad and (each.grad is None or not each.grad.any())
    ]
    assert [name for name in without if "motion" not in name] == []


def test_a_saved_state_has_trained_weights_alone_and_none_twice() -> None:
    networks = few_steps(adversarial=0.03)
    learner = Learner(networks, (), LoopSettings(steps=1, batch_size=1, learning_rate=1e-3), new_accelerator())
    trained = {name for name, each in networks.named_parameters() if each.requires_grad}
    assert set(learner.state()["network"]) == trained
    assert not any(name.startswith(("teacher.", "judge.trunk.transformer")) for name in learner.weights())
    assert any(name.startswith("judge.trunk.proj_out.") for name in trained)


@pytest.mark.slow
def test_the_samples_of_the_student_move_to_the_distribution_of_the_teacher() -> None:
    whole = config().replaced(
        shot_decoder={**config().shot_decoder.model_dump(), "lora_rank": 0},
        bases={**config().bases, "transformer": {"id": "bases/transformer"}},
    )
    teacher, student = decoder(), decoder()
    for network in (teacher, student):
        merge_lora(network)
        for parameter in network.proj_out.parameters():
            nn.init.zeros_(parameter)  # a velocity of 0 is that of normal noise: mean 0, deviation 1
    nn.init.constant_(student.proj_out.bias, 0.6)
    settings = recipe(critic_rank=16, critic_rate=4.0, generator_every=2, denoising_steps=2)
    networks = few_step_networks(settings, whole, teacher, student).train()

    def off() -> float:
        batch = shots(networks, 4, seed=5000)
        return abs(float(networks.drawn(Condition(batch.tokens_BLD, batch.scope_B, None), batch.noises_BKTCHW).mean()))

    before = off()
    learn(networks, lambda step: shots(networks, 2, seed=40 * step, teaches=step % 2 == 0), steps=40, rate=3e-3)
    assert before > 0.2
    assert off() < before / 2
