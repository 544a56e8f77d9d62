"""Noise schedule, objective and sampler against the papers' formulas, written out in numpy."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from models.diffusion import Guidance, make_scheduler, noised, sample, v_loss, velocity
from models.engine_options import STEP_COUNTS, check_steps
from pipeline.core.errors import UserError

SHAPE = (2, 3, 4, 4)  # T C H W


def abar() -> np.ndarray:
    """Signal's share of the variance at each timestep: SNR divided by 3, then the last one rescaled to zero."""
    betas = np.linspace(math.sqrt(0.00085), math.sqrt(0.0120), 1000) ** 2
    kept = np.cumprod(1 - betas)
    snr = kept / (1 - kept) / 3
    signal = np.sqrt(snr / (1 + snr))
    signal = (signal - signal[-1]) * signal[0] / (signal[0] - signal[-1])
    return signal**2


ABAR = abar()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_schedule_has_the_published_values():
    table = make_scheduler().alphas_cumprod.numpy()
    np.testing.assert_allclose(table, ABAR, atol=1e-12)
    assert ABAR[999] == 0
    assert math.sqrt(ABAR[19]) == pytest.approx(0.97292, abs=1e-5)  # the value in the published training table


def test_noising_and_velocity_rotate_latents_and_noise():
    latents, noise = drawn(4, *SHAPE), drawn(4, *SHAPE, seed=1)
    timesteps = torch.tensor([0, 19, 500, 999])
    signal, spread = np.sqrt(ABAR[timesteps])[:, None, None, None, None], None
    spread = np.sqrt(1 - ABAR[timesteps])[:, None, None, None, None]
    z, eps = latents.double().numpy(), noise.double().numpy()
    np.testing.assert_allclose(noised(latents, noise, timesteps).numpy(), signal * z + spread * eps, atol=1e-6)
    np.testing.assert_allclose(velocity(latents, noise, timesteps).numpy(), signal * eps - spread * z, atol=1e-6)
    assert torch.equal(noised(latents, noise, timesteps)[3], noise[3])  # the last timestep is noise alone


def test_the_loss_is_the_weighted_error_of_the_clean_latents():
    latents, noise, predicted = (drawn(3, *SHAPE, seed=seed) for seed in range(3))
    timesteps = torch.tensor([7, 640, 999])
    part = ABAR[timesteps][:, None, None, None, None]
    z, eps, v = (each.double().numpy() for each in (latents, noise, predicted))
    x = np.sqrt(part) * z + np.sqrt(1 - part) * eps
    clean = np.sqrt(part) * x - np.sqrt(1 - part) * v
    expected = ((clean - z) ** 2 / (1 - part)).mean(axis=(1, 2, 3, 4))
    np.testing.assert_allclose(v_loss(predicted, latents, noise, timesteps).numpy(), expected, rtol=1e-5)
    assert not v_loss(velocity(latents, noise, timesteps), latents, noise, timesteps).any()


def solved(network: Callable[[np.ndarray, int], np.ndarray], steps: int, seed: int) -> np.ndarray:
    """Solution by SDE-DPM-Solver++(2M) of the DPM-Solver++ paper, in double precision, noise from torch."""
    generator = torch.Generator().manual_seed(seed)

    def noise() -> np.ndarray:
        return torch.randn(1, *SHAPE, generator=generator).double().numpy()

    stride = 1000 // steps
    times = [999 - i * stride for i in range(steps)]
    shares = [*ABAR[times], 1.0]
    with np.errstate(divide="ignore"):
        log_snr = [0.5 * (np.log(share) - np.log(1 - share)) for share in shares]
    x, before = noise(), None
    for i, time in enumerate(times):
        clean = math.sqrt(shares[i]) * x - math.sqrt(1 - shares[i]) * network(x, time)
        h = log_snr[i + 1] - log_snr[i]
        aim, kick = clean, noise()
        if 0 < i < steps - 1:
            ratio = (log_snr[i] - log_snr[i - 1]) / h
            aim = clean + (clean - before) / (2 * ratio)
            kick = noise()  # diffusers draws for the first-order solution too and drops it, as the published code does
        alpha, sigma = math.sqrt(shares[i + 1]), math.sqrt(1 - shares[i + 1])
        x = sigma / math.sqrt(1 - shares[i]) * np.exp(-h) * x
        x = x + alpha * (1 - np.exp(-2 * h)) * aim + sigma * math.sqrt(1 - np.exp(-2 * h)) * kick
        before = clean
    return x


def toy(latents: Tensor, tokens: Tensor, timesteps: Tensor, scopes: Tensor | None) -> Tensor:
    """Toy network whose output depends on all of its inputs."""
    lift = tokens.mean(dim=(1, 2)) + (0 if scopes is None else scopes / 50)
    inner = latents * (1 + timesteps.view(-1, 1, 1, 1, 1) / 1000) + lift.view(-1, 1, 1, 1, 1)
    return torch.tanh(inner)


def toy_np(x: np.ndarray, time: int, lift: float) -> np.ndarray:
    return np.tanh(x * (1 + time / 1000) + lift)


def run(**changes: object) -> Tensor:
    options = {"guidance": Guidance("constant", 1.0), "steps": 10, "generator": torch.Generator().manual_seed(5)}
    tokens = torch.full((1, 2, 3), 0.3)
    return sample(toy, SHAPE, tokens, torch.full((1, 2, 3), -0.2), torch.tensor([10.0]), **{**options, **changes})


@pytest.mark.parametrize("steps", [1, 2, 10, 50])
def test_a_run_equals_the_solver_of_the_paper(steps: int):
    expected = solved(lambda x, time: toy_np(x, time, 0.3 + 0.2), steps, seed=5)
    np.testing.assert_allclose(run(steps=steps).numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("steps", [1, 2, 10, 50])
def test_an_ode_run_equals_the_solver_of_the_paper_and_draws_noise_once(steps: int):
    stride = 1000 // steps
    times = [999 - i * stride for i in range(steps)]
    shares = [*ABAR[times], 1.0]
    with np.errstate(divide="ignore"):
        log_snr = [0.5 * (np.log(share) - np.log(1 - share)) for share in shares]
    x = torch.randn(1, *SHAPE, generator=torch.Generator().manual_seed(5)).double().numpy()
    before = x
    for i, time in enumerate(times):
        clean = math.sqrt(shares[i]) * x - math.sqrt(1 - shares[i]) * toy_np(x, time, 0.3 + 0.2)
        h = log_snr[i + 1] - log_snr[i]
        aim = clean + (clean - before) * h / (2 * (log_snr[i] - log_snr[i - 1])) if 1 < i < steps - 1 else clean
        x = math.sqrt((1 - shares[i + 1]) / (1 - shares[i])) * x + math.sqrt(shares[i + 1]) * (1 - np.exp(-h)) * aim
        before = clean
    np.testing.assert_allclose(run(steps=steps, sampler="ode").numpy(), x, atol=2e-5)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_renoised_run_takes_each_clean_sample_with_fresh_noise_to_the_next_timestep(steps: int):
    generator = torch.Generator().manual_seed(5)
    clean = np.zeros((1, *SHAPE))
    for time in range(999, -1, -1000 // steps):
        noise = torch.randn(1, *SHAPE, generator=generator).double().numpy()
        x = math.sqrt(ABAR[time]) * clean + math.sqrt(1 - ABAR[time]) * noise
        clean = math.sqrt(ABAR[time]) * x - math.sqrt(1 - ABAR[time]) * toy_np(x, time, 0.3 + 0.2)
    np.testing.assert_allclose(run(steps=steps, sampler="renoise").numpy(), clean, atol=2e-5)


def test_more_steps_of_the_ode_come_closer_to_its_solution():
    solution = run(steps=1000, sampler="ode")
    errors = [float((run(steps=steps, sampler="ode") - solution).abs().mean()) for steps in (10, 20, 40)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_outside_its_interval_guidance_costs_nothing_and_changes_nothing():
    tokens, sizes = drawn(1, 2, 3), []

    def spy(latents: Tensor, given: Tensor, timesteps: Tensor, scopes: Tensor | None) -> Tensor:
        sizes.append(len(latents))
        assert torch.equal(given[-1:], tokens)
        return toy(latents, given, timesteps, scopes)

    options = {"steps": 10, "guidance": Guidance("constant", 6.0, (300, 700))}
    sample(spy, SHAPE, tokens, drawn(1, 2, 3, seed=1), None, generator=torch.Generator().manual_seed(0), **options)
    assert sizes == [1, 1, 1, 2, 2, 2, 2, 1, 1, 1]  # at 999, 899, ... 99
    never = run(guidance=Guidance("constant", 6.0, (998, 998)))
    assert torch.equal(never, run(guidance=Guidance("constant", 1.0)))


@pytest.mark.parametrize("kind", ["constant", "published"])
def test_guidance_moves_from_the_unconditional_to_the_conditional(kind: str):
    def network(x: np.ndarray, time: int) -> np.ndarray:
        scale = 6.0 if kind == "constant" else 1 + 6 * (1 - math.cos(math.pi * ((50 - time) / 50) ** 5)) / 2
        without, within = toy_np(x, time, -0.2 + 0.2), toy_np(x, time, 0.3 + 0.2)
        return without + scale * (within - without)

    expected = solved(network, 50, seed=5)
    np.testing.assert_allclose(run(steps=50, guidance=Guidance(kind, 6.0)).numpy(), expected, atol=2e-4)


def test_the_published_scale_has_the_documented_values():
    guidance = Guidance("published", 6.0)
    first = [guidance.at(timestep, 50) for timestep in (999, 979, 959, 939, 919, 899)]
    last = [guidance.at(timestep, 50) for timestep in (79, 59, 39, 19)]
    assert first == pytest.approx([2.29, 2.54, 6.97, 6.42, 2.79, 4.27], abs=0.006)
    assert last == pytest.approx([1.06, 1.0, 1.0, 1.12], abs=0.006)
    assert {Guidance("constant", 6.0).at(timestep, 50) for timestep in (999, 19)} == {6.0}


def test_both_halves_of_guidance_share_one_batch_and_one_scope():
    seen: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []

    def spy(latents: Tensor, tokens: Tensor, timesteps: Tensor, scopes: Tensor | None) -> Tensor:
        seen.append((latents, tokens, timesteps, scopes))
        return latents.half()

    tokens, none = drawn(2, 2, 3), drawn(1, 2, 3, seed=1)
    options = {"generator": torch.Generator().manual_seed(0), "steps": 4}
    found = sample(spy, SHAPE, tokens, none, torch.tensor([1.0, 40.0]), guidance=Guidance("constant", 6.0), **options)
    assert found.shape == (2, *SHAPE)
    assert found.dtype == torch.float32  # whatever the dtype of the network's output
    assert [each[2].tolist() for each in seen] == [[time] * 4 for time in (999, 749, 499, 249)]
    latents, both, _, scopes = seen[0]
    assert torch.equal(latents[:2], latents[2:])
    assert torch.equal(both, torch.cat([none, none, tokens]))
    assert scopes.tolist() == [1.0, 40.0, 1.0, 40.0]
    seen.clear()
    sample(spy, SHAPE, tokens, none, None, guidance=Guidance("constant", 1.0), **options)
    assert [len(each[0]) for each in seen] == [2] * 4  # a scale of 1 needs no second half
    assert torch.equal(seen[0][1], tokens)


def test_step_counts_that_would_leave_noise_are_refused():
    assert STEP_COUNTS == (1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100, 125, 200, 250, 500, 1000)
    for steps in (0, 30, 1001):
        with pytest.raises(UserError, match="one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50"):
            check_steps(steps)
    with pytest.raises(UserError, match="unlike 30"):
        run(steps=30)


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_old_seeds_draw_the_shots_that_the_scheduler_of_diffusers_draws(steps: int):
    generator, scheduler = torch.Generator().manual_seed(5), make_scheduler()
    scheduler.set_timesteps(steps)
    x, clean, before = torch.randn(1, *SHAPE, generator=generator), None, None
    for time in scheduler.timesteps.tolist():
        found = toy(x, torch.full((1, 2, 3), 0.3), torch.tensor([time]), torch.tensor([10.0]))
        x, clean = scheduler.step(found, clean, time, before, x, generator=generator, return_dict=False)
        before = time
    assert torch.equal(run(steps=steps), x)
