"""The tokenizer's table: rows trained and measured by the commands of a user, printed beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.tokenizer import ROWS, measured_rows, table_of
from flows.cli import app
from flows.train_run import Ablation, EncoderAblation
from tests.support.networks.small_run import small_dataset

SHORT = "steps = 1\nbatch_size = 2\nmicro_batch = 1\n"
CONFIG = f"""
[autoencoder]
measured = 1
pictures = 0
stills.steps = 1
clips.steps = 1
[model.shot_decoder]
height = 32
width = 48
[shot.warm_up]
{SHORT}
[shot.joint]
{SHORT}
[game.windows]
most_turns = 3
[validation]
clips = 1
pictures = 0
"""


def run(*words: str | Path) -> None:
    """Run a command of `animegamer` in this process."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output


def test_every_variant_of_the_tokenizer_has_a_row() -> None:
    assert set(get_args(EncoderAblation)) < set(ROWS)
    assert set(ROWS) - {"full"} < set(get_args(Ablation))


@pytest.mark.nightly
def test_rows_are_trained_measured_and_printed_beside_the_papers(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(CONFIG)
    training, rows = ("--recipe", "tiny", "--config", str(tmp_path / "short.toml")), ("full", "random-frame")
    measuring = ("--steps", "1", "--guidance", "1", "--device", "cpu")
    figures = measured_rows(str(small_dataset()), tmp_path / "rows", training, measuring, rows, run)
    notes = {agent.name: agent.note for agent in figures.agents}
    assert notes["random-frame"].startswith("Unlike full: encoded_frame random, not first.")
    assert not (tmp_path / "rows" / "full" / "game").exists()
    console = Console(width=100, record=True)
    console.print(table_of(figures))
    lines = {line.split("  ")[0]: line.split() for line in console.export_text().splitlines()[1:]}
    assert list(lines)[:3] == ["full", "random-frame", "paper: full tokenizer"]
    assert lines["paper: random frame"][-2:] == ["0.4740", "0.5620"]
    assert float(lines["random-frame"][1]) <= 1
