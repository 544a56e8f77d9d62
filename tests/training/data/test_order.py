"""Order of examples: each item once per epoch, one timestep in each band, the same for any processes and any start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.core.errors import UserError
from training.baselines.phases import PictureExamples
from training.data.order import Batches, Position, epoch_order, spread
from training.phases.shot import ShotExamples


def flat(batches: Sequence[Sequence[Position]]) -> list[Position]:
    return list(chain.from_iterable(batches))


@pytest.mark.parametrize(("count", "batch_size"), [(10, 4), (3, 8), (101, 16)])
def test_every_item_occurs_once_per_epoch_although_batches_cross_epochs(count: int, batch_size: int) -> None:
    steps = -(-3 * count // batch_size)
    batches = list(Batches(count, batch_size, 5, steps=range(steps)))
    assert {len(batch) for batch in batches} == {batch_size}
    row = flat(batches)
    for epoch in range(3):
        assert [place.item for place in row if place.epoch == epoch] == epoch_order(5, epoch, count).tolist()
    assert [place.epoch for place in row] == sorted(place.epoch for place in row)


def test_indivisible_batches_are_errors() -> None:
    with pytest.raises(UserError, match="4 processes cannot share a batch of 6"):
        Batches(10, 6, 0, steps=range(1), processes=4)
    with pytest.raises(UserError, match="no examples to train on"):
        Batches(0, 6, 0, steps=range(1))


CLIPS, BATCH = 21, 8


class Features:
    """Feature cache of constants."""

    def get(self, name: str, _clip_id: str) -> Tensor:
        shapes = {"latents": (2, 1, 1, 2, 2), "flux_pictures": (2, 1, 2, 2)}
        return torch.zeros(shapes.get(name, (1, 2)))


def examples_of(kind: str) -> Any:
    turn = SimpleNamespace(clip_id="a", sample=SimpleNamespace(motion=SimpleNamespace(scope_px=1.0)))
    turns, cache = [turn] * CLIPS, Features()
    if kind == "shot":
        return ShotExamples(turns, cache, {"text": torch.zeros(1, 2)}, seed=3)  # type: ignore[arg-type]
    return PictureExamples(turns, cache, shift=0.0, scale=1.0, seed=3)  # type: ignore[arg-type]


def batches(steps: range, processes: int = 1) -> Iterator[list[Position]]:
    """Global batches, put together from the shares of the processes."""
    shares = [Batches(CLIPS, BATCH, 3, steps=steps, process=rank, processes=processes) for rank in range(processes)]
    return (list(chain.from_iterable(step)) for step in zip(*shares, strict=True))


def levels(kind: str, batch: list[Position]) -> list[float]:
    examples = examples_of(kind)
    return [getattr(examples[place], "timestep" if kind == "shot" else "sigma") for place in batch]


def test_the_noise_levels_of_pictures_fall_into_bands_of_equal_probability() -> None:
    def share_below(sigma: float) -> float:
        """Share of a standard normal below the logit of sigma."""
        return float(torch.special.ndtr(torch.logit(torch.tensor(sigma, dtype=torch.float64))))

    for batch in batches(range(20)):
        assert [int(share_below(sigma) * BATCH) for sigma in levels("gfc", batch)] == list(range(BATCH))


@pytest.mark.parametrize("kind", ["shot", "gfc"])
def test_processes_and_resumed_runs_draw_the_same(kind: str) -> None:
    alone = [levels(kind, batch) for batch in batches(range(12))]
    assert [levels(kind, batch) for batch in batches(range(12), processes=4)] == alone
    assert [levels(kind, batch) for batch in batches(range(5, 12))] == alone[5:]


def test_over_many_steps_all_timesteps_occur_and_each_clip_meets_all_bands() -> None:
    drawn = [(place.item, timestep) for batch in batches(range(600)) for place, timestep in
             zip(batch, levels("shot", batch), strict=True)]  # fmt: skip
    timesteps = torch.tensor([timestep for _, timestep in drawn], dtype=torch.float64)
    assert len(set(timesteps.tolist())) > 950
    assert abs(float(timesteps.mean()) - 499.5) < 3  # independent draws would have a standard error of 4.2
    assert {int(timestep * BATCH / 1000) for item, timestep in drawn if item == 0} == set(range(BATCH))


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [(0, 4, []), (3, 4, [0, 1, 2]), (4, 4, [0, 1, 2, 3]), (40, 4, [5, 15, 25, 35]), (10, 3, [1, 5, 8]), (9, 1, [4])],
)
def test_clips_are_the_middles_of_equal_parts(count: int, most: int, expected: list[int]) -> None:
    assert spread(count, most) == expected
