"""GC of size mini: a small pipeline on the bases of a checkpoint, whose transformer is trained whole and then plays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
from accelerate import Accelerator

from models.checkpoint import Checkpoint
from models.config import mini_config
from models.diffusion import noised, v_loss
from models.frames import decode_latents
from models.untrained import new_checkpoint
from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.tiny_models import tiny_checkpoint
from training.baselines.agents import load_baseline
from training.baselines.config import VideoSettings, mini
from training.baselines.encoding import fill_features, open_features
from training.baselines.folder import BaselineFolder, new_mini_gc
from training.baselines.phases import TextToVideo, gc_phase
from training.baselines.run import train_baseline
from training.config import FeatureSettings, LoopSettings
from training.data.definitions import open_cache
from training.data.feature_cache import share_out
from training.data.shards import open_shards
from training.data.turns import Catalog
from training.phases.shot import NoisedShots
from training.recipes import read_recipe
from training.run_folder import RunFolder
from training.trainer import StepReport, Trainer


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("mini") / "checkpoint"
    return new_checkpoint(folder, mini_config().replaced(level_values=(1.0, 2.0, 3.0, 4.0, 5.0)))


@pytest.fixture(scope="module")
def baseline(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> BaselineFolder:
    return new_mini_gc(tmp_path_factory.mktemp("gc") / "gc", checkpoint)


@pytest.mark.slow
def test_it_has_the_bases_of_the_checkpoint_and_draws_its_clips(
    baseline: BaselineFolder, checkpoint: Checkpoint
) -> None:
    assert BaselineFolder.open(baseline.folder).config == baseline.config
    agent, shape = load_baseline(baseline.folder, device="cpu"), checkpoint.config.shot_decoder
    (turn,) = agent.play(["Mika walks"])
    assert turn.frames_THWC.shape == (shape.frames, shape.height, shape.width, 3)
    assert turn.scope_px == checkpoint.config.level_values[2]
    pipeline = agent.pipelines["video"]
    latents_BTCHW = torch.randn(1, 5, 16, 8, 12)
    drawn = decode_latents(pipeline.vae, latents_BTCHW)
    assert torch.equal(drawn, decode_latents(checkpoint.autoencoder(), latents_BTCHW))
    again = next(iter(load_baseline(baseline.folder, device="cpu").play(["Mika walks"])))
    assert (again.frames_THWC == turn.frames_THWC).all()


@pytest.mark.nightly
def test_its_transformer_learns_two_clips_and_plays(
    baseline: BaselineFolder, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, films=1, scenes=1, clips=2, captioner=MODEL), ShardSettings(samples=3, val_share=0))
    cache = open_features(baseline, tmp_path / "features", Catalog.read(open_shards(root, "train")))
    fill_features(baseline, share_out([cache], tuple(cache.features), Accelerator()))
    phase = gc_phase(baseline, cache, cache)
    assert all(parameter.requires_grad for parameter in phase.network.parameters())
    loop = LoopSettings(
        steps=40, batch_size=4, micro_batch=4, learning_rate=5e-3, schedule="constant", optimizer="muon",
        rate_warm_up=2, save_every=40, validate_every=10,
    )  # fmt: skip
    reports: list[StepReport] = []
    result = Trainer(phase, loop, tmp_path / "run", Accelerator(cpu=True)).run(reports.append)
    losses = [report.figures["val/loss"] for report in reports if "val/loss" in report.figures]
    # slow, since latents of an untrained autoencoder are mostly noise
    assert len(losses) == 4
    assert losses[-1] < losses[0] - 0.02
    (turn,), (before,) = (load_baseline(each, device="cpu").play(["one"]) for each in (result, baseline.folder))
    assert len(turn.frames_THWC) == 16, "the clips have 16"
    assert (turn.frames_THWC != before.frames_THWC[:16]).any()
    trained = phase.network.get_submodule("transformer").state_dict()
    played = BaselineFolder.open(result).video().transformer.state_dict()
    assert all(torch.equal(played[name], tensor) for name, tensor in trained.items())
    assert [each.untrained() for each in (baseline, BaselineFolder.open(result))] == [["video pipeline"], []]


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str], RunFolder]:
    """Factory of run folders on a small dataset."""
    write_shards(
        make_dataset(tmp_path, films=1, scenes=1, clips=2, captioner=MODEL), ShardSettings(samples=3, val_share=0)
    )
    return lambda name: RunFolder(tmp_path / name, [str(tmp_path)])


@pytest.mark.slow
def test_training_and_play_give_the_patches_the_same_positions(baseline: BaselineFolder) -> None:
    pipeline, shape = baseline.video(), (1, 5, 16, 16, 24)
    generator = torch.Generator().manual_seed(0)
    latents_BTCHW, noise_BTCHW = (torch.randn(shape, generator=generator) for _ in range(2))
    text_BND, timesteps_B = torch.randn(1, 32, 96, generator=generator), torch.tensor([500])
    rotary = pipeline._prepare_rotary_positional_embeddings(128, 192, 5, torch.device("cpu"))
    noised_BTCHW = noised(latents_BTCHW, noise_BTCHW, timesteps_B)
    with torch.no_grad():
        played_BTCHW, without_BTCHW = (
            pipeline.transformer(noised_BTCHW, text_BND, timesteps_B, image_rotary_emb=each, return_dict=False)[0]
            for each in (rotary, None)
        )
        found_B = TextToVideo(pipeline.transformer)(
            NoisedShots(latents_BTCHW, noise_BTCHW, timesteps_B, torch.zeros(1), (text_BND,))
        )["loss"]
    assert not torch.equal(played_BTCHW, without_BTCHW)
    assert torch.equal(found_B, v_loss(played_BTCHW, latents_BTCHW, noise_BTCHW, timesteps_B))


@pytest.mark.slow
def test_a_run_makes_it_of_a_checkpoint_and_of_no_other_afterwards(
    checkpoint: Checkpoint, place: Callable[[str], RunFolder], tmp_path: Path
) -> None:
    recipe = read_recipe("mini")
    loop = recipe.gc.loop.model_copy(update={"steps": 1, "batch_size": 2, "micro_batch": 2})
    recipe = recipe.model_copy(update={"gc": recipe.gc.model_copy(update={"loop": loop})})
    result = train_baseline("gc", place("run"), recipe, checkpoint.folder)
    assert train_baseline("gc", place("run"), recipe, checkpoint.folder) == result
    catalog = place("run").catalogs()["train"]
    in_tiles = recipe.model_copy(update={"features": FeatureSettings(tiled=True)})
    for each in (recipe, in_tiles):
        of_model = open_cache(tmp_path, catalog, checkpoint, each, ("latents",)).features["latents"]
        tiled = each.features.tiled
        of_baseline = open_features(BaselineFolder.open(result), tmp_path, catalog, tiled=tiled).features["latents"]
        assert of_baseline.ingredients == of_model.ingredients, "both read the same encoded clips"
    with pytest.raises(UserError, match="recipe"):  # it was trained on latents without the seams of tiles
        train_baseline("gc", place("run"), in_tiles, checkpoint.folder)
    tiled_result = train_baseline("gc", place("tiled"), in_tiles, checkpoint.folder)
    assert set(place("tiled").folder.glob("features-gc/latents/*")) != set()
    assert tiled_result.exists()
    other = new_checkpoint(tmp_path / "other", mini_config(), seed=1).folder
    with pytest.raises(UserError, match="start"):
        train_baseline("gc", place("run"), recipe, other)


@pytest.mark.slow
def test_after_its_folder_is_removed_it_is_made_of_the_checkpoint_that_is_named_now(
    checkpoint: Checkpoint, place: Callable[[str], RunFolder], tmp_path: Path
) -> None:
    run, other = place("run"), new_checkpoint(tmp_path / "other", mini_config(), seed=1)
    phase = run.folder / "gc"
    (phase / "result").mkdir(parents=True)  # nothing is trained
    train_baseline("gc", run, read_recipe("mini"), checkpoint.folder)
    assert base_of(run) == autoencoder_of(checkpoint)
    with pytest.raises(UserError, match=rf"{phase} was begun with another encoder and another start: .*remove"):
        train_baseline("gc", run, read_recipe("mini"), other.folder)
    assert base_of(run) == autoencoder_of(checkpoint)
    shutil.rmtree(phase)
    (phase / "result").mkdir(parents=True)
    train_baseline("gc", run, read_recipe("mini"), other.folder)
    assert base_of(run) == autoencoder_of(other) != autoencoder_of(checkpoint)
    assert BaselineFolder.open(run.folder / "start-gc").config.level_values == other.config.level_values


def base_of(run: RunFolder) -> bytes:
    return (run.folder / "start-gc/bases/video/vae/diffusion_pytorch_model.safetensors").read_bytes()


def autoencoder_of(checkpoint: Checkpoint) -> bytes:
    return (checkpoint.folder / "bases/autoencoder/diffusion_pytorch_model.safetensors").read_bytes()


def test_there_is_no_other_baseline_of_this_size_and_it_needs_a_checkpoint_of_it(
    place: Callable[[str], RunFolder],
) -> None:
    tiny = tiny_checkpoint()
    of_mini = "the size mini has only the baseline GC"
    kinds: dict[str, tuple[Literal["gc", "gfc"], Path | None, str]] = {
        "picture": ("gfc", tiny, of_mini),
        "start": ("gc", None, of_mini),
        "size": ("gc", tiny, "is of size tiny"),
    }
    for name, (kind, start, fault) in kinds.items():
        with pytest.raises(UserError, match=fault):
            train_baseline(kind, place(name), read_recipe("mini"), start)
    with pytest.raises(ValueError, match="lora_rank must be 0"):
        VideoSettings(base=mini().video.base, whole=True, lora_rank=8)
