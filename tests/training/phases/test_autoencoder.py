"""Autoencoder phase: metrics against their formulas, crops, refused settings, and learning."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from diffusers import AutoencoderKLCogVideoX
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from models.checkpoint import Checkpoint
from models.checkpoint_writer import save_config
from models.config import Base, inside_id
from models.frames import encode_frames
from pipeline.core.atomic import HeldError, held
from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import make_dataset
from tests.support.networks.small_run import small_dataset, small_recipe, small_run, start
from tests.support.networks.tiny_models import (
    brief_checkpoint,
    change_image_encoder,
    copy_of_tiny,
    tiny_checkpoint,
)
from training.config import FitSettings, LoopSettings, Precision
from training.data.order import Position
from training.phases.autoencoder import (
    CropExamples,
    Crops,
    Reconstruction,
    fit_autoencoder,
    psnr,
    read_frames,
    reconstructed,
    whiten_latents,
    with_cheap_stills,
)
from training.run import TrainingRun
from training.run_folder import RunFolder
from training.trainer import StepReport


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Film of eight scenes with a clip each, two of them held out."""
    root = tmp_path_factory.mktemp("dataset")
    made = make_dataset(root, films=1, scenes=8, clips=1)
    write_shards(made, ShardSettings(val_share=0.25, block_seconds=5))
    return root


def small_start(folder: Path) -> Checkpoint:
    """Copy of the tiny checkpoint with frames of a quarter of the size."""
    config = Checkpoint.open(copy_of_tiny(folder)).config
    shot = config.shot_decoder.model_copy(update={"height": 32, "width": 48})
    save_config(folder, config.replaced(shot_decoder=shot))
    return Checkpoint.open(folder)


def brief_fit(precision: Precision) -> FitSettings:
    """One step of each kind."""
    loop = LoopSettings(steps=1, batch_size=1, micro_batch=1, learning_rate=1e-3)
    return FitSettings(stills=loop, clips=loop, most_clips=1, measured=1, pictures=1, precision=precision)


def clips_of(count: int = 2, frames: int = 9, height: int = 32, width: int = 48) -> torch.Tensor:
    """Clips whose pixels all differ, as far as bytes allow."""
    values = torch.arange(count * frames * height * width * 3) * 7 % 251
    return values.reshape(count, frames, height, width, 3).to(torch.uint8)


def test_psnr_is_the_published_formula() -> None:
    dice = np.random.default_rng(0)
    one, other = dice.integers(0, 256, (2, 3, 5, 8, 8, 3), dtype=np.uint8)
    wanted = [10 * np.log10(255**2 / np.mean((a.astype(float) - b) ** 2)) for a, b in zip(one, other, strict=True)]
    assert psnr(torch.from_numpy(one), torch.from_numpy(other)).tolist() == pytest.approx(wanted, rel=1e-5)
    assert psnr(torch.from_numpy(one), torch.from_numpy(one)).tolist() == pytest.approx([58.92] * 3, abs=0.01)


@pytest.mark.parametrize(("kind", "frames"), [("stills", 1), ("clips", 17)])
def test_a_crop_is_a_part_of_its_clip_determined_by_the_position(kind: str, frames: int) -> None:
    clips_NTHWC = clips_of(frames=17)
    examples = CropExamples(clips_NTHWC, kind, 16, seed=3)  # type: ignore[arg-type]
    again = CropExamples(clips_NTHWC, kind, 16, seed=3)  # type: ignore[arg-type]
    corners = set()
    for epoch in range(12):
        crop_THWC, noise_CTHW = examples[Position(epoch, 1)]
        assert crop_THWC.shape == (frames, 16, 24, 3)
        assert noise_CTHW.shape == (16, (frames - 1) // 4 + 1, 2, 3)
        assert torch.equal(crop_THWC, again[Position(epoch, 1)][0])
        assert torch.equal(noise_CTHW, again[Position(epoch, 1)][1])
        pieces_RCTHWC = clips_NTHWC[1].unfold(1, 16, 1).unfold(2, 24, 1).permute(1, 2, 0, 4, 5, 3)
        found = [
            (start, *place.tolist())
            for start in range(17 - frames + 1)
            for place in (pieces_RCTHWC[:, :, start : start + frames] == crop_THWC).flatten(2).all(2).nonzero()
        ]
        assert found
        corners.add(found[0])
    assert len(corners) > 6


def test_the_terms_of_the_loss_match_their_formulas() -> None:
    torch.manual_seed(0)
    autoencoder = Checkpoint.open(brief_checkpoint()).autoencoder()
    frames_BTHWC = clips_of(frames=1)
    noise_BCTHW = torch.randn(2, 16, 1, 4, 6)
    with torch.no_grad():
        terms = Reconstruction(autoencoder, divergence=0.5)(Crops(frames_BTHWC, noise_BCTHW))
        pictures_BCTHW = frames_BTHWC.permute(0, 4, 1, 2, 3) / 127.5 - 1
        found = autoencoder.encode(pictures_BCTHW).latent_dist
        latents_BCTHW = found.mean + noise_BCTHW * torch.exp(found.logvar / 2)
        squared_B = (autoencoder.decode(latents_BCTHW).sample - pictures_BCTHW).pow(2).flatten(1).mean(1)
    divergence = kl_divergence(Normal(found.mean, found.std), Normal(torch.zeros(()), torch.ones(())))
    assert torch.allclose(terms["error"], squared_B, rtol=1e-4)
    assert torch.allclose(terms["divergence"], divergence.flatten(1).mean(1), rtol=1e-4)
    assert torch.allclose(terms["loss"], terms["error"] + 0.5 * terms["divergence"])


def test_the_error_of_changes_counts_what_moves_and_not_what_is_wrong_all_the_time() -> None:
    autoencoder = Checkpoint.open(brief_checkpoint()).autoencoder()
    crops = Crops(clips_of(frames=9), torch.zeros(2, 16, 3, 4, 6))
    found = Reconstruction(autoencoder, divergence=0.0, changes=2.0)
    with torch.no_grad():
        terms = found(crops)
        pictures_BCTHW = crops.frames_BTHWC.permute(0, 4, 1, 2, 3) / 127.5 - 1
        drawn_BCTHW = autoencoder.decode(autoencoder.encode(pictures_BCTHW).latent_dist.mean).sample
        wanted = (drawn_BCTHW.diff(dim=2) - pictures_BCTHW.diff(dim=2)).square().flatten(1).mean(1)
        assert torch.allclose(terms["changes"], wanted, rtol=1e-4)
        assert torch.allclose(terms["loss"], terms["error"] + 2 * terms["changes"])
        stills = found(Crops(clips_of(frames=1), torch.zeros(2, 16, 1, 4, 6)))
    assert "changes" not in stills
    assert torch.equal(stills["loss"], stills["error"])


@pytest.mark.parametrize("frames", [1, 9])
def test_cheap_stills_change_neither_result_nor_gradient(frames: int) -> None:
    plain, cheap = (Checkpoint.open(tiny_checkpoint()).autoencoder() for _ in range(2))
    crops = Crops(clips_of(frames=frames), torch.zeros(2, 16, (frames - 1) // 4 + 1, 4, 6))
    for autoencoder in (plain, with_cheap_stills(cheap)):
        autoencoder.requires_grad_(True)
        Reconstruction(autoencoder, 1e-5)(crops)["loss"].sum().backward()
    for one, other in zip(plain.parameters(), cheap.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_whitening_takes_the_root_of_the_variances_and_keeps_the_reconstruction() -> None:
    autoencoder, clips_NTHWC = Checkpoint.open(brief_checkpoint()).autoencoder(), clips_of(count=3)
    autoencoder.register_to_config(scaling_factor=1.0)
    nn.init.normal_(autoencoder.decoder.conv_in.conv.weight)  # a decoder that depends on its latents
    # the decoder pads with zeros, so only around a mean of 0 the frames are exactly the same
    last, mean_C = autoencoder.encoder.conv_out.conv, values_by_channel(autoencoder, clips_NTHWC).mean(dim=1)
    last.bias[: len(mean_C)] -= mean_C
    variances_C = torch.linalg.eigvalsh(torch.cov(values_by_channel(autoencoder, clips_NTHWC)))
    before_NTHWC = reconstructed(autoencoder, clips_NTHWC)
    assert before_NTHWC.float().std() > 10
    whiten_latents(autoencoder, clips_NTHWC)
    values_CN = values_by_channel(autoencoder, clips_NTHWC)
    torch.testing.assert_close(values_CN.mean(dim=1), torch.zeros(len(values_CN)), atol=1e-3, rtol=0.0)
    roots_C = variances_C.sqrt()
    torch.testing.assert_close(torch.cov(values_CN), (roots_C / roots_C.mean()).diag(), atol=1e-2, rtol=0.0)
    assert int((reconstructed(autoencoder, clips_NTHWC).int() - before_NTHWC.int()).abs().max()) <= 1


def values_by_channel(autoencoder: AutoencoderKLCogVideoX, clips_NTHWC: Tensor) -> Tensor:
    """Return the means of all latents by channel."""
    return encode_frames(autoencoder, clips_NTHWC).mean_BTCHW.movedim(2, 0).flatten(1)


def test_a_published_autoencoder_is_not_trained(tmp_path: Path, dataset: Path) -> None:
    folder = copy_of_tiny(tmp_path / "checkpoint")
    config = Checkpoint.open(folder).config
    published = Base(id="zai-org/CogVideoX-2b", subfolder="vae")
    save_config(folder, config.replaced(bases={**config.bases, "autoencoder": published}))
    with pytest.raises(UserError, match=r"is published \(zai-org/CogVideoX-2b\)"):
        fit_autoencoder(Checkpoint.open(folder), dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_fp16_without_a_gpu_is_refused_before_clips_are_read(tmp_path: Path, dataset: Path) -> None:
    settings = brief_fit("fp16")
    with pytest.raises(UserError, match=r"autoencoder: fp16 needs a GPU, .*; set autoencoder.precision"):
        fit_autoencoder(Checkpoint.open(tiny_checkpoint()), dataset, tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_fit_leaves_no_network_in_memory_and_is_not_of_another_image_encoder(tmp_path: Path, dataset: Path) -> None:
    start = small_start(tmp_path / "start")
    settings = brief_fit("bf16")
    gc.disable()
    try:
        fit_autoencoder(start, dataset, tmp_path / "run", settings)
        assert not [found for found in gc.get_objects() if type(found) is Reconstruction]
    finally:
        gc.enable()
    change_image_encoder(start.folder)
    with pytest.raises(UserError, match="was begun with another encoder: name another --out"):
        fit_autoencoder(start, dataset, tmp_path / "run", settings)


def test_a_folder_that_another_process_fits_in_is_left_alone(tmp_path: Path, dataset: Path) -> None:
    start = Checkpoint.open(tiny_checkpoint())
    with held(tmp_path, "another fit"), pytest.raises(HeldError, match="another fit"):
        fit_autoencoder(start, dataset, tmp_path, brief_fit("no"))
    assert not (tmp_path / "made_from.json").exists()


@pytest.mark.slow
def test_phases_after_a_fit_have_their_own_precision(tmp_path: Path) -> None:
    seen = dict[str, str]()

    class Noting(TrainingRun):
        def _phase(self, name: str, checkpoint: Checkpoint, *given: Any) -> Checkpoint:
            (accelerator,) = (each for each in given if isinstance(each, Accelerator))
            seen[name] = accelerator.mixed_precision
            return checkpoint

    recipe = small_recipe(autoencoder=brief_fit("bf16").model_dump(mode="json"), shot={"precision": "no"})
    Noting(RunFolder(tmp_path, str(small_dataset())), recipe).shot()
    assert seen == {"warm-up": "no", "joint": "no"}


@pytest.mark.nightly
def test_two_processes_that_share_the_weights_fit_and_validate_as_one(tmp_path: Path) -> None:
    brief = {"steps": 2, "batch_size": 2, "micro_batch": 1, "validate_every": 1, "learning_rate": 1e-3}
    fit = {"stills": brief, "clips": brief, "most_clips": 2, "measured": 1, "pictures": 0}
    none = {"loop": {"steps": 0}}
    described = small_recipe(
        autoencoder=fit, shot={"warm_up": {"steps": 0}, "joint": {"steps": 0}}, game=none, adapt=none
    )
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    process = start(tmp_path / "sharded", described, *launcher, ACCELERATE_USE_CPU="true")
    told, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors[-3000:]
    assert "units of stills: ['FSDPCogVideoXResnetBlock3D', 'FSDPReconstruction']" in errors
    reports: list[StepReport] = []
    small_run(tmp_path / "one", described, watch=reports.append).shot()
    expected = {(report.phase, report.step): report.figures["loss"] for report in reports}
    losses = {(phase, int(step)): float(loss) for phase, step, loss in map(str.split, told.splitlines())}
    assert losses == pytest.approx(expected, rel=1e-4)


def test_a_few_clips_are_spread_over_the_split(dataset: Path) -> None:
    config = Checkpoint.open(tiny_checkpoint()).config
    every = read_frames(dataset, "train", config, most=100)
    assert every.shape[1:] == (17, 64, 96, 3)
    some = read_frames(dataset, "train", config, most=2)
    assert torch.equal(some, every[[len(every) // 4, 3 * len(every) // 4]])


@pytest.mark.nightly
def test_it_learns_and_a_resumed_run_ends_the_same(tmp_path: Path, dataset: Path) -> None:
    start, steps = Checkpoint.open(tiny_checkpoint()), 150
    settings = FitSettings()
    stills = settings.stills.model_copy(update={"steps": steps, "learning_rate": 2e-3, "save_every": steps // 2})
    clips = settings.clips.model_copy(update={"steps": 2, "learning_rate": 1e-4, "rate_warm_up": 0})
    settings = settings.model_copy(update={"stills": stills, "clips": clips, "pictures": 1, "measured": 2})
    whole = fit_autoencoder(start, dataset, tmp_path / "whole", settings)
    with pytest.raises(KeyboardInterrupt):
        fit_autoencoder(start, dataset, tmp_path / "stopped", settings, watch=_stop_at(steps * 2 // 3))
    resumed = fit_autoencoder(start, dataset, tmp_path / "stopped", settings)
    assert resumed.after == whole.after
    assert set(whole.after) == {"train", "val"}
    assert whole.after["train"] > whole.before["train"] + 2
    assert whole.sheet.exists()
    _check_written(whole.checkpoint, start)
    other = settings.model_copy(update={"divergence": 1e-3})
    with pytest.raises(UserError, match=r"was begun with another settings.divergence: name another --out"):
        fit_autoencoder(start, dataset, tmp_path / "whole", other)


def _stop_at(step: int) -> Callable[[StepReport], None]:
    def watch(report: StepReport) -> None:
        if report.step == step:
            raise KeyboardInterrupt

    return watch


def _check_written(fitted: Checkpoint, start: Checkpoint) -> None:
    """Check that plain diffusers loads the result, that all else is copied from the start, and the start unchanged."""
    inside = inside_id("autoencoder")
    loaded = AutoencoderKLCogVideoX.from_pretrained(fitted.folder / inside)
    assert loaded.config.scaling_factor == 1.0
    assert json.loads((start.folder / inside / "config.json").read_text())["scaling_factor"] != 1.0
    files = {path.relative_to(start.folder) for path in start.folder.rglob("*") if path.is_file()}
    written = {path.relative_to(fitted.folder) for path in fitted.folder.rglob("*") if path.is_file()}
    assert written == files | {Path("trained.json")}
    changed = {str(file) for file in files if (start.folder / file).read_bytes() != (fitted.folder / file).read_bytes()}
    assert changed == {f"{inside}/config.json", f"{inside}/diffusion_pytorch_model.safetensors"}
