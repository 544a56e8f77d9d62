"""Trial of a recipe: real steps of the phases at `tiny`, and micro-batches that do not fit."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from flows.cli import app
from training.config import Recipe
from training.recipes import loop_of, merged, tiny
from training.trial import Trial, described, fitting, try_phase


@pytest.mark.parametrize(("phase", "packed"), [("adapt", False), ("game", True)])
def test_steps_of_a_phase_are_timed_and_give_the_hours_of_all(phase: str, packed: bool) -> None:
    changes = {"game": {"windows": {"packed": packed}, "loop": {"ema_decay": 0.9, "micro_batch": 3}}}
    trial = try_phase(phase, Recipe.model_validate(merged(tiny().model_dump(), changes)))  # type: ignore[arg-type]
    assert trial is not None
    assert trial.micro_batch == (3 if phase == "game" else 4)
    assert 0 < trial.update_seconds < trial.seconds
    assert trial.hours == pytest.approx(loop_of(tiny(), phase).steps * (trial.seconds + trial.update_seconds) / 3600)
    assert (trial.peak_gb, trial.mfu) == (None, None)


def test_the_largest_micro_batch_that_fits_is_found_and_named() -> None:
    def attempt(size: int) -> str:
        if size > 2:
            raise torch.OutOfMemoryError
        return "fits"

    assert fitting(4, attempt) == (2, "fits")
    assert fitting(4, lambda size: attempt(size + 9)) is None
    loop = loop_of(tiny(), "joint")
    trial = Trial("joint", 2, 0.5, 0.1, 116.7, 45.0, 0.4)
    line = described("joint", loop, trial, datetime(2026, 12, 1, 9, 30))
    assert line == (
        "joint: 0.6 s a step, 2 examples at once, 45.0 GB, MFU 40%, 700 steps take 117 hours, until 2026-12-01 09:30. "
        "4 at once did not fit: set shot.joint.micro_batch = 2"
    )
    assert "card24" in described("joint", loop, None, datetime(2026, 12, 1))


@pytest.mark.slow
def test_the_command_tries_all_phases_and_writes_nothing(tmp_path: Path) -> None:
    command = ["train", "all", "--data", "not-read", "--out", str(tmp_path / "run"), "--try"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    lines = [line for line in told.stdout.splitlines() if " a step, " in line]
    assert [line.partition(":")[0] for line in lines] == ["warm-up", "joint", "game", "adapt"]
    assert not (tmp_path / "run").exists()
    assert CliRunner().invoke(app, [*command[:1], "gc", *command[2:]]).exit_code == 2
