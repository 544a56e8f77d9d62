"""Trainings of the miniature: encoders, starts of ablations, and what variants change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from examples.commands import run_command
from examples.miniature.clip import train_clip
from examples.miniature.encoders import (
    FITTED,
    LOOP,
    SEEN,
    LearningCurve,
    read_curve,
    train_autoencoder,
    train_autoencoder_more,
    train_image_encoder,
)
from examples.miniature.model_runs import ABLATIONS, JOINT, Variant, start_of, train_variants, variants
from examples.miniature.package import keep_networks, restore_networks
from examples.miniature.recogniser_network import Recogniser
from models.checkpoint import TRANSFORMER_FILE, Checkpoint
from pipeline.core.errors import UserError
from tests.support.networks.small_run import small_dataset
from tests.support.networks.tiny_models import mini_checkpoint
from training.config import FitSettings, LoopSettings
from training.evaluation.metrics.networks import load_clip
from training.recipes import read_recipe
from training.trainer import StepReport

OF_TRAINING = {"no-warm-up", "random-frame"}
BASES = ("autoencoder", "image_encoder", "text_encoder", "language_model")


def weights(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "bases" / name / "model.safetensors").read_bytes() for name in BASES[1:]} | {
        BASES[0]: (folder / "bases" / BASES[0] / "diffusion_pytorch_model.safetensors").read_bytes()
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("world")
    shutil.copytree(mini_checkpoint(), out / FITTED)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_has_a_start_that_its_recipe_accepts(world: Path, name: str) -> None:
    fitted, start = world / FITTED, start_of(world, name)
    assert (start == fitted) == (name in OF_TRAINING)
    started, wanted = Checkpoint.open(start), read_recipe("mini", name).model
    assert (started.config.shot_encoder, started.config.shot_decoder) == (wanted.shot_encoder, wanted.shot_decoder)
    assert weights(start) == weights(fitted)
    assert started.shot_encoder()
    assert started.shot_decoder()
    assert start_of(world, name) == start


@pytest.mark.slow
def test_kept_networks_start_the_next_step_in_another_folder(tmp_path: Path) -> None:
    out, other, kept = (tmp_path / name for name in ("out", "other", "kept"))
    with pytest.raises(UserError, match="has no finished network: run the step `image-encoder` first"):
        keep_networks(out, kept)
    with pytest.raises(UserError, match="has no networks: run the first steps, and then the step `keep`"):
        restore_networks(other, kept)
    for result in (SEEN, FITTED):
        shutil.copytree(mini_checkpoint(), out / result)
    keep_networks(out, kept)
    packed = {path.name for path in (kept / "bases").iterdir()}
    assert packed == {"image_encoder", "autoencoder"}
    shutil.copytree(mini_checkpoint(), out / JOINT)
    (out / "recogniser" / "result").mkdir(parents=True)
    (recogniser := Recogniser()).save(out / "recogniser" / "result", recogniser.state_dict())
    keep_networks(out, kept)
    sizes = [path.stat().st_size for path in kept.rglob("*") if path.is_file()]
    assert sum(sizes) < 22e6
    assert max(sizes) < 15e6
    begun = Checkpoint.open(shutil.copytree(mini_checkpoint(), other / "start"))
    shaken = begun.folder / "bases" / "text_encoder" / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(shaken).items()}, shaken)  # as another version makes it
    restore_networks(other, kept)
    assert not (other / "model" / "game").exists()
    restored = Recogniser.open(other / "recogniser" / "result").state_dict()
    for name, value in recogniser.state_dict().items():
        torch.testing.assert_close(restored[name], value, rtol=1e-3, atol=1e-3)
    trained, fitted, joint = (Checkpoint.open(folder) for folder in (out / JOINT, other / FITTED, other / JOINT))
    autoencoders = trained.autoencoder(), fitted.autoencoder()
    for one, restored in ((trained.shot_decoder(), joint.shot_decoder()), autoencoders):
        for name, value in restored.state_dict().items():
            assert torch.equal(value, one.state_dict()[name].half().float()), name
    texts = [each.text_encoder().states(["slightly run"]) for each in (trained, joint)]
    torch.testing.assert_close(*texts, atol=0.02, rtol=0.02)
    weights_of = [each.shot_decoder().state_dict()["proj_out.weight"] for each in (fitted, begun)]
    assert torch.equal(*weights_of), "not trained in that step"
    assert train_autoencoder(other) == train_autoencoder_more(other) == other / FITTED
    assert train_image_encoder(other) == other / SEEN
    written = {path: path.stat().st_mtime_ns for path in other.rglob("*") if path.is_file()}
    restore_networks(other, kept)
    assert written == {path: path.stat().st_mtime_ns for path in other.rglob("*") if path.is_file()}


@pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant.name)
def test_a_variant_changes_what_its_name_says(tmp_path: Path, variant: Variant) -> None:
    (changes := tmp_path / "changes.toml").write_text(variant.toml())
    recipe, main = read_recipe("mini", variant.ablation, changes), read_recipe("mini")
    loops, of_main = (
        [each.gc.loop] if variant.parts == ("gc",) else [each.shot.joint, each.game.loop, each.adapt.loop]
        for each in (recipe, main)
    )
    seed = int(variant.name[-1]) if variant.name.startswith("seed") else 0
    is_whole = seed > 0 or variant.name == "research"
    assert all((loop.steps == other.steps) == is_whole for loop, other in zip(loops, of_main, strict=True))
    assert [loop.seed for loop in loops] == [0, seed, seed][-len(loops) :]
    assert (variant.parts == ("game", "adapt")) == (seed > 0)
    assert is_whole or recipe.game.loop.steps in (1500, main.game.loop.steps)


def test_variants_of_unknown_names_are_refused_before_any_training(world: Path) -> None:
    with pytest.raises(UserError, match=r"there is no variant seed-3; choose from short, .*, seed-1, seed-2"):
        train_variants(world, ["short", "seed-3"])
    assert not (world / "variants").exists()


def test_a_command_beside_others_has_its_messages_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"messages\.txt says why.*fix it, and the same command resumes"):
        run_command("train", "all", "--recipe", "none", beside=tmp_path / "messages.txt")
    assert "train --help" in (tmp_path / "messages.txt").read_text()


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
    few = LoopSettings(steps=3, batch_size=2, micro_batch=2, learning_rate=1e-3, validate_every=1)
    settings = FitSettings(stills=few, clips=few, measured=1, pictures=0)
    seen = train_image_encoder(tmp_path, loop)
    train_autoencoder(tmp_path, settings)
    fitted = train_autoencoder_more(tmp_path, settings)
    said = capsys.readouterr().err
    assert "image encoder, random: " in said
    assert "autoencoder: train " in said
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert (train_image_encoder(tmp_path, loop), train_autoencoder_more(tmp_path, settings)) == (seen, fitted)
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    encoder, autoencoder = "bases/image_encoder/model.safetensors", f"bases/autoencoder/{TRANSFORMER_FILE}"
    clip = train_clip(tmp_path, steps=3)
    assert load_clip(str(clip)).embed_texts(["run", "Character: Mika; Motion: run."]).shape == (2, 64)
    start = tmp_path / "start"
    assert (start / encoder).read_bytes() != (seen / encoder).read_bytes() == (fitted / encoder).read_bytes()
    assert (
        (start / autoencoder).read_bytes() == (seen / autoencoder).read_bytes() != (fitted / autoencoder).read_bytes()
    )
    curve = read_curve(tmp_path / "autoencoder" / "curve.jsonl")
    assert [(point["phase"], point["step"]) for point in curve] == [
        *(("stills", step) for step in (1, 2, 3)),
        ("clips", 1),
        ("clips", 2),
    ]
    assert [point["step"] for point in read_curve(fitted.parents[1] / "curve.jsonl")] == [1]
    assert {"psnr_train", "psnr_val"} <= curve[0].keys()
