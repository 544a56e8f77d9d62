"""Runs whose game model learns from a predicted past, and whose shot decoder adapts to predictions of several kinds."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.core.errors import UserError
from tests.support.networks.small_run import STEPS, small_recipe, small_run
from tests.support.networks.small_run_process import train_through_kills, weights
from training.trainer import StepReport

pytestmark = pytest.mark.nightly


def test_a_run_on_its_own_past_killed_in_a_pass_ends_with_the_same_bytes(tmp_path: Path) -> None:
    past = {"history_noise": 0.5, "history_predicted": 0.5, "first_pass": 3}
    short = {"warm_up": {"steps": 0}, "joint": {"steps": 1}}
    described = small_recipe(shot=short, game=past, adapt={"predictions": "out-of-fold"})
    reports: list[StepReport] = []
    run = small_run(tmp_path / "whole", described, watch=reports.append)
    run.shot()
    run.game()
    run.adapt()
    passes = {"joint": 1, "first-pass": 3, "game": STEPS, "fold-1-of-2": 3 + STEPS, "fold-2-of-2": 3 + STEPS}
    assert Counter(report.phase for report in reports) == {**passes, "adapt": STEPS}
    assert reports[3 + STEPS].figures["val/train_shot_tokens"] > 0
    train_through_kills(tmp_path / "killed", described, (("first-pass", 2), ("game", 5), ("fold-1-of-2", 4)))
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert expected.keys() == found.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    lines: list[str] = []
    small_run(tmp_path / "whole", small_recipe(shot=short, game=past), say=lines.append).game()
    assert lines == ["first-pass: done already", "game: done already"]
    with pytest.raises(UserError, match="first-pass was begun with another recipe"):
        small_run(tmp_path / "whole", small_recipe(shot=short, game={**past, "history_noise": 0.4})).game()


def test_rolled_out_and_out_of_fold_predictions_differ_from_the_models_own(tmp_path: Path) -> None:
    made = {}
    for mode in ("own", "rollout", "out-of-fold"):
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
    for mode in ("rollout", "out-of-fold"):
        assert made[mode].keys() == made["own"].keys()
        same = [
            torch.equal(made[mode][file][clip], made["own"][file][clip])
            for file in made["own"]
            for clip in made["own"][file]
        ]
        assert not all(same)
    with pytest.raises(UserError, match="run `animegamer train game` in this folder first"):
        small_run(tmp_path / "new", small_recipe(adapt={"predictions": "out-of-fold"})).adapt()
