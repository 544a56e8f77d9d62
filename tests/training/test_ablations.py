"""Every ablation of the paper trains from end to end and leaves a checkpoint that plays."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.engine_options import EngineOptions
from models.game import Game
from tests.support.networks.small_run import small_recipe, small_run
from training.recipes import ABLATIONS, ablation

IN_THE_GATE = "random-frame"
"""The one that changes what the networks read; `no-history` and `no-warm-up` leave something out, the others change a
setting of a network or a loss."""
SHORT = {"steps": 1, "validate_every": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == IN_THE_GATE else pytest.param(name, marks=pytest.mark.nightly) for name in ABLATIONS]
)
def test_an_ablation_trains_and_plays(tmp_path: Path, name: str) -> None:
    short = small_recipe(
        shot={"warm_up": SHORT, "joint": SHORT}, game={"loop": SHORT}, adapt={"loop": SHORT}, looks={"clips": 1}
    )
    run = small_run(tmp_path, ablation(name, short))
    run.shot()
    run.game()
    checkpoint = run.adapt()
    (turn,) = Game.load(checkpoint, EngineOptions(steps=1)).play("Hana runs over the waves")
    assert turn.frames_THWC.shape == (16, 32, 48, 3)
    left_out = {"no-warm-up": "warm-up", "no-adaptation": "adapt"}.get(name)
    assert [phase for phase in ("warm-up", "joint", "game", "adapt") if not (tmp_path / phase).exists()] == (
        [left_out] if left_out else []
    )
