"""An evaluation killed with SIGKILL at work and run again: nothing is played or measured twice.

What its judge asks is in `tests/training/evaluation/test_judge.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.networks.tiny_baselines import brief_baseline
from tests.support.networks.tiny_models import brief_checkpoint
from training.evaluation.benchmark import Panel, write_benchmark
from training.evaluation.figures import Figures
from training.evaluation.folder import EvaluationFolder

pytestmark = pytest.mark.nightly


def command(out: Path, benchmark: Path) -> list[str]:
    agents = [f"ours={brief_checkpoint()}", f"gc={brief_baseline('gc')}"]
    options = ["--benchmark", str(benchmark), "--steps", "2", "--guidance", "1", "--device", "cpu"]
    named = [word for agent in agents for word in ("--agent", agent)]
    return [sys.executable, "-m", "flows.cli", "evaluate", "run", str(out), *named, *options]


def clips(out: Path) -> dict[Path, Path]:
    return {path.relative_to(out): path for path in sorted(out.glob("games/*/*/[0-9]*.mp4"))}


def bytes_of(files: dict[Path, Path]) -> dict[Path, bytes]:
    return {name: path.read_bytes() for name, path in files.items()}


def features(out: Path) -> dict[Path, int]:
    """Return the times of the features that are cached."""
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("features/*/[0-9a-f]*"))}


def kill_when(is_reached: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    """Kill a command once a point is reached."""
    deadline = time.monotonic() + 120
    while not is_reached():
        assert running.poll() is None, "the command ended early"
        assert time.monotonic() < deadline, "the point is not reached"
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()


def test_killed_again_and_again_nothing_is_played_twice(tmp_path: Path) -> None:
    benchmark = tmp_path / "games.jsonl"
    asked = {"MD": "run", "EV": "shore", "level": 3, "SC": 0, "ET": 0, "ST": -1}
    write_benchmark(benchmark, [Panel(game=game, turn=turn, **asked) for game in ("a", "b") for turn in (1, 2, 3)])
    subprocess.run(command(tmp_path / "whole", benchmark), check=True, capture_output=True)
    out, times = tmp_path / "killed", dict[Path, int]()
    for count in (2, 5, 8):  # in ours' first game, in its second, in gc's
        with subprocess.Popen(command(out, benchmark), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
            kill_when(lambda count=count: len(clips(out)) >= count, running)
        assert {name: path.stat().st_mtime_ns for name, path in clips(out).items() if name in times} == times
        logged = {turn.clip for agent in ("ours", "gc") for turn in EvaluationFolder.open(out).played(agent)}
        times = {name: path.stat().st_mtime_ns for name, path in clips(out).items() if path in logged}
        assert len(times) >= count - 1, "a turn that is on disk but not logged is one at most"
    with subprocess.Popen(command(out, benchmark), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
        kill_when(lambda: len(features(out)) > 2, running)  # while it measures
    measured = features(out)
    subprocess.run(command(out, benchmark), check=True, capture_output=True)
    assert features(out).items() >= measured.items(), "measured twice"
    after = {name: path.stat().st_mtime_ns for name, path in clips(out).items()}
    assert after.items() >= times.items()
    assert bytes_of(clips(out)) == bytes_of(clips(tmp_path / "whole"))
    assert figures_but_costs(out) == figures_but_costs(tmp_path / "whole")


def figures_but_costs(out: Path) -> list[tuple[object, ...]]:
    """Return all means with their intervals, but for seconds and memory, which differ from run to run."""
    figures = Figures.model_validate_json((out / "figures.json").read_bytes()).figures
    assert len(figures) > 50
    return [tuple(each) for each in figures if not each.metric.endswith(("_seconds", "_gb"))]
