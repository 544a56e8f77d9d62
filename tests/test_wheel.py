"""The wheel: in an empty environment it builds a dataset and plays a turn, and it holds our packages alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.media.films import make_film

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
OURS = {"flows", "models", "pipeline", "prompts", "training"}


def said_by(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_builds_and_plays_without_the_repository(tmp_path: Path) -> None:
    environment = tmp_path / "env"
    said_by(UV, "venv", "--python", sys.executable, environment, cwd=tmp_path)
    pins = ("--constraint", ROOT / "constraints.txt", f"{ROOT}[train]")
    said_by(UV, "pip", "install", "--python", environment / "bin/python", *pins, cwd=tmp_path)
    (packages,) = environment.glob("lib/python*/site-packages")
    (installed,) = packages.glob("animegamer_pipeline-*.dist-info/RECORD")
    names = {line.partition("/")[0] for line in installed.read_text().splitlines() if ".dist-info/" not in line}
    assert names - {".."} == OURS
    animegamer = environment / "bin/animegamer"
    assert "endless game" in said_by(animegamer, "--help", cwd=tmp_path)
    film = make_film(tmp_path / "film.mp4", frames=72)
    assert "data/shards" in said_by(animegamer, "build", film, "--out", "data", cwd=tmp_path)
    (tmp_path / "game.txt").write_text("Character: Ann; Motion: run; Background: forest.\n")
    assert "game/film.mp4" in said_by(animegamer, "play", "--game", "game.txt", "--out", "game", cwd=tmp_path)
