"""Export of a trained run for the hub: files, card, and what only the user can add."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from models.checkpoint import Checkpoint
from models.config import full_config
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import copy_of_tiny
from training.model_card import card_of, export_model

TRAINED = {
    "phases": [{"phase": "joint", "step": 7, "steps": 7}, {"phase": "game", "step": 2000, "steps": 2000}],
    "validation": {"game": {"loss": 0.25, "state": 0.125}},
}


def run_of(folder: Path) -> Path:
    """Run with a result of phase b."""
    copy_of_tiny(folder / "game" / "result")
    (folder / "game" / "result" / "trained.json").write_text(json.dumps(TRAINED))
    (folder / "recipe.json").write_text("{}")
    return folder


def test_a_run_becomes_a_folder_that_plays_with_a_card_and_the_command_to_upload_it(tmp_path: Path) -> None:
    run, out = run_of(tmp_path / "run"), tmp_path / "hub"
    words = ["export", str(run), "--out", str(out), "--for"]
    told = CliRunner().invoke(app, [*words, "huggingface"])
    assert told.exit_code == 0, told.output
    assert f"upload: hf upload USER/NAME {out} --repo-type model" in told.output.replace("\n", "")
    assert "only you know it" in told.output
    files = {path.relative_to(run / "game" / "result") for path in (run / "game" / "result").rglob("*")}
    assert files | {Path("README.md"), Path("recipe.json")} == {path.relative_to(out) for path in out.rglob("*")}
    assert Checkpoint.open(out).identity() == Checkpoint.open(run / "game" / "result").identity()
    card = (out / "README.md").read_text()
    for line in ("* `game` (game model): 2,000 of 2,000 steps", "| game | `loss` | 0.2500 |", "not stated"):
        assert line in card
    again = CliRunner().invoke(app, [*words, "huggingface"])
    assert again.exit_code == 1
    other = CliRunner().invoke(app, [*words, "folder"])
    assert other.exit_code == 1
    assert "export it with --for huggingface" in other.output.replace("\n", " ")


def test_a_card_names_the_bases_of_the_hub_and_what_is_not_known() -> None:
    card = card_of(full_config(), {"phases": []}, "ponyo")
    assert "base_model:\n- " in card
    assert "Not trained here." in card
    assert "None recorded." in card


def test_a_run_without_a_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(UserError, match="has no result yet"):
        export_model(tmp_path, tmp_path / "out")
