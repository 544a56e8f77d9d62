"""`animegamer play` as a user calls it: missing parts are named, and games are played from a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.game.folder import GameFolder
from tests.support.networks.tiny_baselines import brief_baseline
from tests.support.networks.tiny_models import tiny_checkpoint


def _run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_without_the_networks_the_commands_name_what_to_install(tmp_path: Path) -> None:
    # an interpreter with typer and our packages, but without torch
    code = "import sys; sys.modules['torch'] = None; from flows.cli import main; main()"
    command = [sys.executable, "-c", code, "play", "--checkpoint", str(tmp_path), "--serve"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "make install-train" in result.stderr


def test_play_names_missing_parts_and_options_that_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "game.txt").write_text("she runs\n")
    baseline = ("--checkpoint", brief_baseline("gc"), "--game", tmp_path / "game.txt", "--out", tmp_path / "out")
    for arguments, message in (
        ((), "give either --game"),
        (("--game", "g.txt", "--serve"), "give either --game"),
        (("--game", "g.txt"), "needs --out"),
        (("--serve", "--seed", "2"), "--seed goes with --game, not with --serve"),
        (("--game", "g.txt", "--out", "o", "--port", "0"), "--port goes with --serve, not with --game"),
        (("--game", "g.txt", "--out", "o", "--open"), "--open goes with --serve, not with --game"),
        ((*baseline, "--agent", "gsc"), "is a baseline of kind gc, not gsc"),
        ((*baseline, "--agent", "gc", "--steps", "50"), "--steps goes with the model, not with --agent gc"),
        ((*baseline, "--agent", "gc", "--speed", "fast"), "--speed goes with the model, not with --agent gc"),
        (("--serve", "--offload", "--precision", "int8"), "--offload does not go with --precision int8"),
        ((*baseline, "--agent", "gc", "--serve"), "--serve goes with the model, not with --agent gc"),
    ):
        code, said = _run("play", *arguments)
        assert (code, message in " ".join(said.split())) == (1, True), said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_game_is_played_from_a_file(tmp_path: Path) -> None:
    game = tmp_path / "game.txt"
    game.write_text("# two turns\nCharacter: Ann; Motion: slowly run; Background: forest.\nshe sleeps\n")
    ask = ("play", "--checkpoint", tiny_checkpoint(), "--game", game, "--out", tmp_path / "out", "--steps", "2")
    code, said = _run(*ask)
    assert code == 0, said
    assert (tmp_path / "out/film.mp4").stat().st_size > 1000
    code, said = _run(*ask)
    assert code == 0
    assert "nothing to play" in said
    code, said = _run(*ask, "--seed", "2")
    assert code == 1
    assert "--out" in said


@pytest.mark.slow
def test_a_baseline_plays_a_file(tmp_path: Path) -> None:
    game = tmp_path / "game.txt"
    game.write_text("Character: Ann; Motion: slowly run; Background: forest.\nshe sleeps\n")
    ask = ("play", "--agent", "gc", "--checkpoint", brief_baseline("gc"), "--game", game, "--out", tmp_path / "out")
    code, said = _run(*ask)
    assert code == 0, said
    assert said.splitlines()[-1] == str(tmp_path / "out/film.mp4")
    assert len(GameFolder.open(tmp_path / "out").turns) == 2
    code, said = _run(*ask, "--seed", "2")
    assert code == 1
    assert "begun with seed 0, and this game has 2" in " ".join(said.split())
