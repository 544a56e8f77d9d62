"""The demo of training: what it asks of the model, and what it reads from the logs. `make demo-model` is all of it."""

from __future__ import annotations

from pathlib import Path

from accelerate import Accelerator

from flows.demos.tiny_model import instructions_of, report, scalars
from models.checkpoint import Checkpoint
from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.tiny_models import tiny_checkpoint
from training.data.shards import open_shards
from training.data.turns import read_texts
from training.phases.autoencoder import Fitted


def _log(folder: Path, name: str, figures: list[dict[str, float]]) -> None:
    """A log as the training loop writes it."""
    accelerator = Accelerator(log_with="tensorboard", project_dir=str(folder))
    accelerator.init_trackers(name)
    for step, row in enumerate(figures, start=1):
        accelerator.log(row, step=step)
    for tracker in accelerator.trackers:
        tracker.finish()


def test_figures_come_back_from_the_log(tmp_path: Path) -> None:
    _log(tmp_path, "game", [{"loss": 3.0}, {"loss": 2.0, "val/loss": 5.0}, {"loss": 1.0}])
    assert scalars(tmp_path / "game", "loss") == [3.0, 2.0, 1.0]
    assert scalars(tmp_path / "game", "val/loss") == [5.0]
    assert scalars(tmp_path / "game", "cosine") == []


def test_the_report_tells_both_ends_of_a_phase_and_the_states(tmp_path: Path) -> None:
    rows = [{"loss": 4.0, "state_right": 0.0}] * 10 + [{"loss": 9.0, "state_right": 0.5}] * 3
    rows += [{"loss": 1.0, "state_right": 0.9}] * 10
    _log(tmp_path / "run" / "log", "game", rows)
    sheet = tmp_path / "run" / "joint" / "looks" / "step-00000200" / "sheet.png"
    for step in ("step-00000100", "step-00000200"):
        (sheet.parents[1] / step).mkdir(parents=True)
        (sheet.parents[1] / step / "sheet.png").touch()
    checkpoint = Checkpoint.open(tiny_checkpoint())
    fitted = Fitted(checkpoint, {"train": 9.0, "val": 8.0}, {"train": 22.26, "val": 15.0}, 1.7, Path("a.png"))
    lines = report(tmp_path, fitted, Path("film.mp4"))
    assert "autoencoder: clips of train reconstructed with 9.0 dB before, 22.3 dB after" in lines
    assert "game: loss 4.000 at first, 1.000 last" in lines
    assert "game: 90% of the states right, in training" in lines
    assert sum(str(sheet) in line for line in lines) == 1
    assert lines[-1] == "the game: film.mp4"


def test_the_game_has_an_instruction_of_each_scene(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1, scenes=6, clips=1, captioner=MODEL)
    write_shards(dataset, ShardSettings(val_share=0.2, block_seconds=2.5))
    found = instructions_of(tmp_path, turns=3)
    assert found == [turn.instruction for turn in read_texts(open_shards(tmp_path, "train"))][:3]
