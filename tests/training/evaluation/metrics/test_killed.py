"""Measurement killed at any moment and run again: the same measures, and nothing done twice that was finished."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.evaluation.painted_agents import AGENTS, SETTINGS, write_games, write_played
from training.evaluation.measures import Measure
from training.evaluation.metrics.measure import MetricNetworks, measure
from training.evaluation.played import PlayedTurn

CHILD = """
import sys
from pathlib import Path
from tests.training.evaluation.metrics.test_killed import measures
measures(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def played(root: Path) -> list[PlayedTurn]:
    return write_played(root / "games", write_games(root / "games.jsonl", games=4, turns=8), AGENTS[:1])


def measures(root: Path, features: Path) -> list[Measure]:
    return list(measure(played(root), features, MetricNetworks(motion=SETTINGS)))


def files(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.safetensors") if path.name[0] != "."
    }


@pytest.mark.nightly
def test_a_killed_measurement_goes_on_and_gives_the_same_measures(tmp_path: Path) -> None:
    whole = measures(tmp_path, tmp_path / "whole")
    killed = tmp_path / "killed"
    for most in (3, 30):
        child = subprocess.Popen([sys.executable, "-c", CHILD, tmp_path, killed])
        while child.poll() is None and len(files(killed)) < most:
            time.sleep(0.002)
        child.kill()
        child.wait()
    kept = {path: (killed / path).stat().st_mtime_ns for path in files(killed)}
    assert 3 <= len(kept) < len(files(tmp_path / "whole"))
    assert measures(tmp_path, killed) == whole
    assert files(killed) == files(tmp_path / "whole")
    assert {path: (killed / path).stat().st_mtime_ns for path in kept} == kept
