"""`animegamer evaluate run`, killed with SIGKILL while agents play, and run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.networks.tiny_baselines import brief_baseline
from tests.support.networks.tiny_models import brief_checkpoint
from training.evaluation.benchmark import Panel, write_benchmark
from training.evaluation.folder import EvaluationFolder

pytestmark = pytest.mark.slow
DEADLINE_SECONDS = 120


def command(out: Path, benchmark: Path) -> list[str]:
    agents = [f"ours={brief_checkpoint()}", f"gc={brief_baseline('gc')}"]
    options = ["--steps", "2", "--guidance", "1", "--device", "cpu"]
    named = [word for agent in agents for word in ("--agent", agent)]
    return [
        sys.executable,
        "-m",
        "flows.cli",
        "evaluate",
        "run",
        str(out),
        "--benchmark",
        str(benchmark),
        *named,
        *options,
    ]


def clips(out: Path) -> dict[Path, Path]:
    return {path.relative_to(out): path for path in sorted(out.glob("games/*/*/[0-9]*.mp4"))}


def kill_when(running: subprocess.Popen[bytes], out: Path, count: int) -> None:
    """Kill a command once so many clips are there."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(clips(out)) < count:
        assert running.poll() is None, "the command ended early"
        assert time.monotonic() < deadline, "no clips"
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()


def test_killed_again_and_again_nothing_is_played_twice(tmp_path: Path) -> None:
    benchmark = tmp_path / "games.jsonl"
    write_benchmark(
        benchmark, [Panel(game=game, turn=turn, words=f"run {turn}") for game in ("a", "b") for turn in (1, 2, 3)]
    )
    subprocess.run(command(tmp_path / "whole", benchmark), check=True, capture_output=True)
    out, times = tmp_path / "killed", dict[Path, int]()
    for count in (2, 5, 8):  # in ours' first game, in its second, in gc's
        running = subprocess.Popen(command(out, benchmark), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        kill_when(running, out, count)
        assert {name: path.stat().st_mtime_ns for name, path in clips(out).items() if name in times} == times
        logged = {turn.clip for agent in ("ours", "gc") for turn in EvaluationFolder.open(out).played(agent)}
        times = {name: path.stat().st_mtime_ns for name, path in clips(out).items() if path in logged}
        assert len(times) >= count - 1, "a turn that is on disk but not logged is one at most"
    subprocess.run(command(out, benchmark), check=True, capture_output=True)
    after = {name: path.stat().st_mtime_ns for name, path in clips(out).items()}
    assert after.items() >= times.items()
    whole = clips(tmp_path / "whole")
    assert {name: path.read_bytes() for name, path in clips(out).items()} == {
        name: path.read_bytes() for name, path in whole.items()
    }
