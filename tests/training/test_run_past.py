"""Runs whose game model learns from a noisy past, and whose shot decoder adapts to rolled-out predictions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.networks.small_run import small_recipe, small_run
from tests.support.networks.small_run_process import train_through_kills, weights

pytestmark = pytest.mark.nightly


def test_a_run_with_a_noisy_past_killed_in_a_phase_ends_with_the_same_bytes(tmp_path: Path) -> None:
    short = {"warm_up": {"steps": 0}, "joint": {"steps": 1}}
    described = small_recipe(shot=short, game={"history_noise": 0.5}, adapt={"predictions": "rollout"})
    run = small_run(tmp_path / "whole", described)
    run.shot()
    run.game()
    run.adapt()
    train_through_kills(tmp_path / "killed", described, (("game", 5),))
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert expected.keys() == found.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


def test_rolled_out_predictions_differ_from_the_models_own(tmp_path: Path) -> None:
    made = {}
    for mode in ("own", "rollout"):
        described = small_recipe(
            shot={"warm_up": {"steps": 0}, "joint": {"steps": 1}},
            game={"precision": "bf16"},
            adapt={"predictions": mode, "loop": {"steps": 1}},
        )
        folder = tmp_path / mode
        if mode != "own":
            shutil.copytree(tmp_path / "own", folder, ignore=shutil.ignore_patterns("adapt", "predictions"))
        run = small_run(folder, described)
        run.shot()
        run.game()
        run.adapt()
        made[mode] = {
            path.name: load_file(path) for path in (folder / "features" / "predictions").rglob("*.safetensors")
        }
    assert made["rollout"].keys() == made["own"].keys()
    same = [
        torch.equal(made["rollout"][file][clip], made["own"][file][clip])
        for file in made["own"]
        for clip in made["own"][file]
    ]
    assert not all(same)
