"""Trial of a recipe: real steps of the phases at `tiny`, and micro-batches that do not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from flows.cli import app
from training.config import Recipe
from training.recipes import loop_of, merged, tiny
from training.trial import Trial, described, fitting, try_phase


@pytest.mark.parametrize(
    ("phase", "packed"), [("adapt", False), pytest.param("game", True, marks=pytest.mark.slow), ("distill", False)]
)
def test_steps_of_a_phase_are_timed_and_give_the_hours_of_all(phase: str, packed: bool) -> None:
    changes = {"game": {"windows": {"packed": packed}, "loop": {"ema_decay": 0.9, "micro_batch": 3}}}
    trial = try_phase(phase, Recipe.model_validate(merged(tiny().model_dump(), changes)))  # type: ignore[arg-type]
    assert trial is not None
    assert trial.micro_batch == (3 if phase == "game" else 4)
    assert 0 < trial.update_seconds < trial.seconds
    assert trial.hours == pytest.approx(loop_of(tiny(), phase).steps * (trial.seconds + trial.update_seconds) / 3600)
    assert (trial.peak_gb, trial.mfu) == (None, None)


def test_the_largest_micro_batch_that_fits_is_found_and_named() -> None:
    def attempt(size: int) -> None:
        if size > 2:
            raise torch.OutOfMemoryError

    assert fitting(4, attempt) == 2
    assert fitting(4, lambda size: attempt(size + 9)) == 0
    loop = loop_of(tiny(), "joint")
    trial = Trial("joint", 2, 4, 0.5, 0.1, 116.7, 45.0, 0.4)
    line = described("joint", loop, trial, datetime(2026, 12, 1, 9, 30))
    assert line == (
        "joint: 0.6 s a step, 2 examples at once, 45.0 GB, MFU 40%, 700 steps take 117 hours, until 2026-12-01 09:30. "
        "4 at once did not fit: set shot.joint.micro_batch = 2"
    )
    assert "did not fit" not in described("joint", loop, replace(trial, wanted=2), datetime(2026, 12, 1))
    assert "card24" in described("joint", loop, None, datetime(2026, 12, 1))


@pytest.mark.slow
def test_the_command_tries_all_phases_and_writes_nothing(tmp_path: Path) -> None:
    command = ["train", "all", "--data", "not-read", "--out", str(tmp_path / "run"), "--try"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    lines = [line for line in told.stdout.splitlines() if " a step, " in line]
    assert [line.partition(":")[0] for line in lines] == ["warm-up", "joint", "game", "adapt"]
    assert not (tmp_path / "run").exists()
    assert CliRunner().invoke(app, [*command[:1], "gc", *command[2:]]).exit_code == 1


TWO = """
import sys
import torch
from torch import nn
from pipeline.core.errors import UserError
from training.phases.game import GameTraining
from training.processes import process_number
from training.recipes import tiny
from training.trial import try_phase

most, passes = map(int, sys.argv[1:])

def run_out(network, inputs):
    global passes
    if isinstance(network, GameTraining) and process_number() == 1:
        passes -= 1
        if len(inputs[0].prompts.targets) > most or not passes:
            raise torch.OutOfMemoryError

nn.modules.module.register_module_forward_pre_hook(run_out)
try:
    trial = try_phase("game", tiny())
except UserError as error:
    sys.exit(str(error))
print(process_number(), trial and trial.micro_batch)
"""


def two_processes(folder: Path, most: int, passes: int = 10**6) -> subprocess.CompletedProcess[str]:
    """Try phase b in two processes; the second has memory for `most` examples, and runs out of it in a pass."""
    (folder / "two.py").write_text(TWO)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    return subprocess.run(
        [*launcher, str(folder / "two.py"), str(most), str(passes)],
        capture_output=True, text=True, timeout=250, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "ACCELERATE_USE_CPU": "true"},
    )  # fmt: skip


@pytest.mark.slow
def test_processes_agree_on_a_micro_batch_that_fits_all(tmp_path: Path) -> None:
    done = two_processes(tmp_path, most=1)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.split("\n")) == ["", "0 1", "1 1"]


@pytest.mark.nightly
def test_a_process_that_runs_out_of_memory_in_an_exchange_ends_the_others(tmp_path: Path) -> None:
    done = two_processes(tmp_path, most=2, passes=4)  # one counts, one fits, two are timed
    assert done.returncode != 0
    assert "game: process 1 has too little memory for a micro-batch of 2: set a smaller game.loop" in done.stderr
