"""Encoder steps of the world in miniature: their results, their learning curves, and doing nothing twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.miniature.encoders import LOOP, LearningCurve, read_curve, train_autoencoder, train_image_encoder
from models.checkpoint import TRANSFORMER_FILE
from tests.support.networks.small_run import small_dataset
from training.config import FitSettings, LoopSettings
from training.trainer import StepReport


def test_a_learning_curve_has_the_validations_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    curve = LearningCurve(tmp_path / "curve.jsonl")
    curve(StepReport("stills", 1, 4, {"loss": 0.5}))
    assert read_curve(curve.path) == []
    curve(StepReport("stills", 2, 4, {"loss": 0.5, "val/psnr_val": 20.0}))
    (first,) = read_curve(curve.path)
    assert {**first, "cpu_seconds": 0} == {"phase": "stills", "step": 2, "cpu_seconds": 0, "psnr_val": 20.0}
    curve.path.write_text(json.dumps({**first, "cpu_seconds": 100.0}) + "\n")
    LearningCurve(curve.path)(StepReport("clips", 4, 4, {"val/psnr_val": 21.5}))
    second = read_curve(curve.path)[1]
    assert (second["phase"], second["psnr_val"]) == ("clips", 21.5)
    assert 100 <= second["cpu_seconds"] < 101


@pytest.mark.nightly
def test_both_encoders_are_trained_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dataset").symlink_to(small_dataset())
    loop = LOOP.model_copy(update={"steps": 2, "batch_size": 4, "micro_batch": 4})
    few = LoopSettings(steps=2, batch_size=2, micro_batch=2, learning_rate=1e-3, validate_every=1)
    settings = FitSettings(stills=few, clips=few, judged=1, pictures=0)
    seen = train_image_encoder(tmp_path, loop)
    fitted = train_autoencoder(tmp_path, settings)
    said = capsys.readouterr().err
    assert "image encoder, random: " in said
    assert "autoencoder: train " in said
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert (train_image_encoder(tmp_path, loop), train_autoencoder(tmp_path, settings)) == (seen, fitted)
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    encoder, autoencoder = "bases/image_encoder/model.safetensors", f"bases/autoencoder/{TRANSFORMER_FILE}"
    start = tmp_path / "start"
    assert (start / encoder).read_bytes() != (seen / encoder).read_bytes() == (fitted / encoder).read_bytes()
    assert (
        (start / autoencoder).read_bytes() == (seen / autoencoder).read_bytes() != (fitted / autoencoder).read_bytes()
    )
    curve = read_curve(tmp_path / "autoencoder" / "curve.jsonl")
    assert [(point["phase"], point["step"]) for point in curve] == [
        (phase, step) for phase in ("stills", "clips") for step in (1, 2)
    ]
    assert {"psnr_train", "psnr_val"} <= curve[0].keys()
