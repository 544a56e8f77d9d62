"""Shots that continue the one before: the examples of their training, and a whole training and game."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.checkpoint import Checkpoint
from models.config import Continues
from models.engine_options import EngineOptions
from models.game import Game
from tests.support.networks.small_run import small_recipe, small_run
from training.data.order import Position
from training.phases.shot import ENDING_NOISE, NoisedShots, ShotExamples

CLIPS = 6


class Features:
    """Feature cache of random numbers, the same for a clip at every call."""

    def get(self, name: str, clip_id: str) -> Tensor:
        shape = {"latents": (2, 3, 4, 8, 8)}.get(name, (1, 2))
        return torch.randn(shape, generator=torch.Generator().manual_seed(int(clip_id)))


def examples(continues: Continues, dropout: float = 0.25) -> ShotExamples:
    """Two scenes of three clips each."""
    turns: list[Any] = []
    for item in range(CLIPS):
        sample = SimpleNamespace(
            film_id="film", scene=item // 3, index=item, overlap_seconds=0.0, motion=SimpleNamespace(scope_px=1.0)
        )
        turns.append(SimpleNamespace(clip_id=str(item), instruction="", sample=sample))
    absent = {"text": torch.zeros(1, 2)}
    return ShotExamples(turns, Features(), absent, dropout=dropout, seed=3, continues=continues)  # type: ignore[arg-type]


def test_validation_sees_the_recorded_end_of_the_clip_before_and_none_at_a_new_scene() -> None:
    some = examples("scene")
    for item in range(CLIPS):
        before_CHW = some.at_noise_level(item, 500).before_CHW
        assert before_CHW is not None
        if item % 3 == 0:
            assert not before_CHW.any()
        else:
            last_CHW = Features().get("latents", str(item - 1))[0, -1]
            assert torch.equal(before_CHW, torch.cat([last_CHW, torch.ones(1, 8, 8)]))


def test_training_drops_some_ends_and_noises_the_others() -> None:
    some = examples("scene")
    drawn = [some[Position(epoch, 1)].before_CHW for epoch in range(200)]
    kept = [before_CHW for before_CHW in drawn if before_CHW.any()]
    assert 0.65 < len(kept) / len(drawn) < 0.85
    assert all((before_CHW[-1] == 1).all() for before_CHW in kept)
    last_CHW = Features().get("latents", "0")[0, -1]
    deviations = torch.tensor([float((before_CHW[:-1] - last_CHW).std()) for before_CHW in kept])
    assert deviations.max() < 1.2 * ENDING_NOISE
    assert 0.4 * ENDING_NOISE < deviations.mean() < 0.6 * ENDING_NOISE
    assert not any(some[Position(epoch, 3)].before_CHW.any() for epoch in range(20)), "its scene begins"


def test_without_the_condition_the_examples_are_those_of_before() -> None:
    plain, more = examples("no"), examples("scene")
    for item in range(CLIPS):
        one, other = (each[Position(2, item)] for each in (plain, more))
        assert one.before_CHW is None
        assert torch.equal(one.noise_TCHW, other.noise_TCHW)
        assert (one.timestep, one.scope_px) == (other.timestep, other.scope_px)
    assert NoisedShots.of([plain.at_noise_level(0, 500)]).before_BCHW is None
    batch = NoisedShots.of([more.at_noise_level(item, 500) for item in (0, 1)])
    assert batch.before_BCHW is not None
    assert batch.before_BCHW.flatten(1).any(dim=1).tolist() == [False, True]


@pytest.mark.slow
def test_a_model_learns_to_continue_shots_and_plays_so(tmp_path: Path) -> None:
    shapes, few = {"shot_decoder": {"height": 32, "width": 48, "continues": "scene"}}, {"steps": 2}
    phases = {"shot": {"warm_up": {"steps": 0}, "joint": few}, "game": {"loop": {"steps": 0}}, "adapt": {"loop": few}}
    run = small_run(tmp_path, small_recipe(model=shapes, **phases))
    joint, adapted = (Checkpoint.open(result) for result in (run.shot(), run.adapt()))
    weights = [each.shot_decoder().patch_embed.proj.before.weight for each in (joint, adapted)]
    assert weights[0].any()
    assert not torch.equal(*weights)
    assert adapted.config.shot_decoder.continues == "scene"
    line = "Character: Qiqi; Motion: {}; Background: beach."
    turns = Game.load(adapted.folder, EngineOptions("cpu", steps=2)).play([line.format("run"), line.format("jump")])
    assert [turn.continues for turn in turns] == [False, True]
