"""Script of measurements on a GPU: its steps, run at `tiny` on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"


def run(step: str, out: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SIZE": "tiny", "OUT": str(out), "OMP_NUM_THREADS": "1"}
    return subprocess.run([SCRIPT, step], capture_output=True, text=True, env=environment, check=False, timeout=500)


def test_there_are_22_steps_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    assert len(set(run("list", tmp_path).stdout.split())) == 22
    assert run("joint", tmp_path).returncode == 2


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["encode", "game-packed-2", "play-plain-10"])
def test_a_step_writes_its_figures(tmp_path: Path, step: str) -> None:
    done = run(step, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / f"{step}.json").read_text())
    assert (found["step"], found["exit_code"], found["device"]) == (step, 0, "CPU")
    assert found["found"]
