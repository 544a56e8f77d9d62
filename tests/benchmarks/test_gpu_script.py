"""Script of measurements on a GPU: its steps, run at `tiny` on a CPU, and the wheels that it names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.sh"


def run(step: str, out: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SIZE": "tiny", "OUT": str(out), "OMP_NUM_THREADS": "1"}
    return subprocess.run([SCRIPT, step], capture_output=True, text=True, env=environment, check=False, timeout=500)


def test_there_are_22_measurements_and_a_training_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    assert len(set(run("list", tmp_path).stdout.split())) == 22 + 1
    assert run("joint", tmp_path).returncode == 2


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["encode", "game-packed-2", "play-plain-10"])
def test_a_step_writes_its_figures(tmp_path: Path, step: str) -> None:
    done = run(step, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / f"{step}.json").read_text())
    assert (found["step"], found["exit_code"], found["device"]) == (step, 0, "CPU")
    assert isinstance(found["found"], dict)
    assert not (tmp_path / f"{step}.tmp").exists()


def wheels() -> list[str]:
    """Return the names of the wheels in the script's head, torch's own first."""
    head = re.sub(r"\n#? ?", " ", SCRIPT.read_text().split("\nset ")[0])
    listed = re.search(r"wheels beside torch's own: (.*?), and what they depend on", head)
    assert listed
    return ["torch", "torchvision", *(name.partition("==")[0] for name in listed[1].split(", "))]


def install(names: list[str], folder: Path) -> set[str]:
    """Link distributions and what they need into a folder of packages; return their names."""
    done: set[str] = set()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower().removesuffix("-headless")
        if name in done:
            continue
        done.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            assert name == "torchao", "an optional package"
            continue
        needed = map(Requirement, found.requires or ())
        names += [each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})]
        for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return done


@pytest.mark.nightly
def test_the_wheels_that_the_script_names_are_enough(tmp_path: Path) -> None:
    installed = install(wheels(), tmp_path)
    assert not {"prefect", "openai", "tensorboard"} & installed
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    python, packed = (sys.executable, "-S", "-m"), ("--recipe", "tiny", "--here", "--phase", "game", "--packed")
    for step in (
        ("benchmarks.training", *packed),
        ("flows.cli", "train", "adapt", "--data", "not-read", "--out", "not-written", "--try"),
        ("benchmarks.model", "--make", str(tmp_path / "checkpoint")),
        ("benchmarks.model", "--in", str(tmp_path / "checkpoint"), "--way", "plain", "--steps", "1", "--turns", "1"),
    ):
        done = subprocess.run([*python, *step], env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
