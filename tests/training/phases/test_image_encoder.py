"""Image encoder phase: retrieval against its definition, learning from captions, resuming, and what is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import CLIPVisionModel

from models.checkpoint import Checkpoint
from models.checkpoint_writer import save_config
from models.config import Base, tiny_config
from models.untrained import random_base
from pipeline.core.errors import UserError
from tests.support.networks.small_run import small_dataset
from tests.support.networks.tiny_models import copy_of_tiny, tiny_checkpoint
from training.config import LoopSettings
from training.phases.image_encoder import Captioned, FramesAgainstCaptions, fit_image_encoder
from training.trainer import StepReport


def loop(**changes: int) -> LoopSettings:
    return LoopSettings.model_validate(
        {"steps": 40, "batch_size": 8, "micro_batch": 8, "learning_rate": 2e-3, "save_every": 10, **changes}
    )


def test_equal_captions_of_a_batch_share_the_target() -> None:
    torch.manual_seed(0)
    network = FramesAgainstCaptions(random_base("image_encoder", tiny_config()), 2)
    frames_BHWC = torch.randint(256, (3, 64, 96, 3), dtype=torch.uint8)
    words_BV = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    with torch.no_grad():
        logits_BB = 10 * network.pictures(frames_BHWC) @ network.captions(words_BV).T
        loss_B = network(Captioned(frames_BHWC, words_BV))["loss"]
    to_captions, to_frames = logits_BB.log_softmax(dim=1), logits_BB.log_softmax(dim=0)
    shared = -(to_captions[0, :2].mean() + to_frames[:2, 0].mean()) / 2
    alone = -(to_captions[2, 2] + to_frames[2, 2]) / 2
    assert loss_B[[0, 2]].tolist() == pytest.approx([float(shared), float(alone)], rel=1e-5)
    assert float(loss_B[0]) != pytest.approx(float(-(to_captions[0, 0] + to_frames[0, 0]) / 2), rel=1e-5)


def test_a_large_batch_has_a_finite_loss() -> None:
    # distances of more than 25 rows come from a product, in which a row need not have distance 0 from itself
    network = FramesAgainstCaptions(random_base("image_encoder", tiny_config()), 7)
    words_BV = torch.nn.functional.normalize(torch.randint(2, (32, 7)).float() + 0.1, p=1, dim=1)
    with torch.no_grad():
        loss_B = network(Captioned(torch.zeros(32, 64, 96, 3, dtype=torch.uint8), words_BV))["loss"]
    assert loss_B.isfinite().all()


@pytest.mark.slow
def test_it_learns_and_a_resumed_run_ends_the_same(tmp_path: Path) -> None:
    start, reports = Checkpoint.open(tiny_checkpoint()), list[StepReport]()
    whole = fit_image_encoder(start, small_dataset(), tmp_path / "whole", loop(), reports.append)
    assert reports[-1].figures["loss"] < 0.7 * reports[0].figures["loss"]
    assert {"val/retrieved", "val/retrieved_in_5", "val/captions"} <= reports[-1].figures.keys()
    with pytest.raises(KeyboardInterrupt):
        fit_image_encoder(start, small_dataset(), tmp_path / "stopped", loop(), _stop_at(25))
    resumed = fit_image_encoder(start, small_dataset(), tmp_path / "stopped", loop())
    weights = "bases/image_encoder/model.safetensors"
    assert (resumed.folder / weights).read_bytes() == (whole.folder / weights).read_bytes()
    changed = {
        str(path.relative_to(start.folder))
        for path in start.folder.rglob("*")
        if path.is_file() and path.read_bytes() != (whole.folder / path.relative_to(start.folder)).read_bytes()
    }
    assert changed == {weights}
    assert isinstance(whole.image_encoder().network, CLIPVisionModel)
    with pytest.raises(UserError, match="was begun with another frozen"):
        fit_image_encoder(start, small_dataset(), tmp_path / "whole", loop(), frozen=True)


def test_a_frozen_encoder_is_measured_and_not_changed(tmp_path: Path) -> None:
    start, reports = Checkpoint.open(tiny_checkpoint()), list[StepReport]()
    same = fit_image_encoder(start, small_dataset(), tmp_path / "run", loop(steps=2), reports.append, frozen=True)
    before, after = (each.image_encoder().state_dict() for each in (start, same))
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert "val/retrieved" in reports[-1].figures


def test_a_published_encoder_is_not_trained(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "checkpoint")
    config = Checkpoint.open(folder).config
    published = Base(id="laion/CLIP-ViT-B-16-laion2B-s34B-b88K")
    save_config(folder, config.replaced(bases={**config.bases, "image_encoder": published}))
    with pytest.raises(UserError, match=r"is laion/\S+, a published one"):
        fit_image_encoder(Checkpoint.open(folder), small_dataset(), tmp_path / "run", loop())
    assert not (tmp_path / "run").exists()


def _stop_at(step: int) -> Callable[[StepReport], None]:
    def watch(report: StepReport) -> None:
        if report.step == step:
            raise KeyboardInterrupt

    return watch
