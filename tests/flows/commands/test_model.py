"""Model commands: their results and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.commands.model import with_bases
from models.checkpoint import Checkpoint
from models.config import Base, mini_config, tiny_config
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import tiny_checkpoint
from training.baselines.config import tiny
from training.baselines.folder import BaselineFolder


def _run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_new_checkpoint_never_overwrites_another(tmp_path: Path) -> None:
    code, said = _run("new-checkpoint", tmp_path / "start", "--seed", "1")
    assert (code, said.splitlines()[-1]) == (0, str(tmp_path / "start"))
    assert Checkpoint.open(tmp_path / "start").identity() == Checkpoint.open(tiny_checkpoint()).identity()
    code, said = _run("new-checkpoint", tmp_path / "start")
    assert code == 1
    assert "exists already" in said


@pytest.mark.slow
def test_a_base_is_read_from_the_given_folder(tmp_path: Path) -> None:
    base = tiny_checkpoint() / "bases/language_model"
    code, _ = _run("new-checkpoint", tmp_path / "start", "--base", f"language_model={base}")
    assert code == 0
    assert not (tmp_path / "start/bases/language_model").exists()
    Checkpoint.open(tmp_path / "start").game_model()


def test_a_base_that_cannot_be_is_refused() -> None:
    for given in ("language_model", "language_model=", "mistral=/x"):
        with pytest.raises(UserError, match=r"give NAME=SOURCE.*autoencoder, image_encoder"):
            with_bases(tiny_config(), [given])
    with pytest.raises(UserError, match=r"--base transformer=x: size mini trains transformer from scratch"):
        with_bases(mini_config(), ["transformer=x"])


def test_a_text_encoder_is_taken_with_the_tokenizer_beside_it(tmp_path: Path) -> None:
    folders = [tmp_path / "text_encoder", tmp_path / "tokenizer", tmp_path / "vae"]
    for folder in folders:
        folder.mkdir()
    given = [f"text_encoder={folders[0]}", f"autoencoder={folders[2]}"]
    assert with_bases(tiny_config(), given).bases["text_encoder"] == Base(id=str(folders[0]))
    (folders[1] / "spiece.model").touch()
    bases = with_bases(tiny_config(), given).bases
    assert bases["text_encoder"] == Base(id=str(tmp_path), subfolder="text_encoder", tokenizer_subfolder="tokenizer")
    assert bases["autoencoder"] == Base(id=str(folders[2]))


def test_a_folder_of_a_base_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    code, said = _run("new-checkpoint", tmp_path / "start", "--base", f"autoencoder={tmp_path / 'typo'}")
    assert code == 1
    assert "typo cannot be loaded: there is no such folder" in " ".join(said.split())
    assert not (tmp_path / "start").exists()


def test_a_new_baseline_is_written(tmp_path: Path) -> None:
    code, said = _run("new-checkpoint", tmp_path / "gsc", "--agent", "gsc", "--seed", "1")
    assert (code, said.splitlines()[-1]) == (0, str(tmp_path / "gsc"))
    assert BaselineFolder.open(tmp_path / "gsc").config == tiny("gsc")
    code, said = _run("new-checkpoint", tmp_path / "other", "--agent", "gsc", "--base", "video=x")
    assert code == 1
    assert "--base goes with the model" in said
