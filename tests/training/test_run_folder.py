"""Run folder: accelerators refused, a network freed after its phase, and phases of another starting checkpoint."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.untrained import random_base
from pipeline.core.errors import UserError
from tests.support.networks.small_run import small_dataset, small_recipe
from tests.support.networks.tiny_models import brief_checkpoint, change_image_encoder, copy_of_tiny
from training.config import LoopSettings
from training.phases.image_encoder import CaptionedClips, FramesAgainstCaptions, ImageEncoderPhase
from training.run import TrainingRun
from training.run_folder import RunFolder


def test_fp16_without_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"shot: fp16 needs a GPU, .* 'auto' or 'no'; set shot.precision in the recipe"):
        RunFolder(tmp_path, str(small_dataset())).accelerator("fp16", "shot")


def test_fp16_with_sharded_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(UserError, match=r"shot: fp16 is not supported with FSDP2, .* 'bf16', or train with DDP; set"):
        RunFolder(tmp_path, str(small_dataset())).accelerator("fp16", "shot")


@pytest.mark.slow
def test_a_network_is_freed_after_its_phase(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, str(small_dataset()), trackers=())
    loop = LoopSettings(steps=1, batch_size=1, micro_batch=1, learning_rate=1e-3)
    parameters = []

    def made() -> ImageEncoderPhase:
        network = FramesAgainstCaptions(random_base("image_encoder", tiny_config()), 2)
        parameters.append(weakref.ref(network.words_VD))
        clips = CaptionedClips(torch.zeros(1, 1, 64, 96, 3, dtype=torch.uint8), torch.full((1, 2), 0.5))
        return ImageEncoderPhase(network, clips, None, Checkpoint.open(brief_checkpoint()))

    gc.disable()
    try:
        run.phase("game", loop, run.accelerator("bf16", "game"), {"start": "aa", "recipe": {}}, made)
        assert [parameter() for parameter in parameters] == [None]
    finally:
        gc.enable()


def test_an_unfinished_phase_is_not_resumed_from_a_start_with_another_encoder(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise InterruptedError

    start, recipe = copy_of_tiny(tmp_path / "start"), small_recipe(model={"shot_decoder": {"height": 64, "width": 96}})
    run_folder = RunFolder(tmp_path / "run", str(small_dataset()), trackers=(), watch_features=stop)
    with pytest.raises(InterruptedError):
        TrainingRun(run_folder, recipe, start).shot()
    change_image_encoder(start)
    with pytest.raises(UserError, match="warm-up was begun with another encoder: name another --out"):
        TrainingRun(run_folder, recipe, start).shot()
