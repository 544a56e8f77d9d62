"""Training of the baselines' adapters: features, objectives against restatements, and a loop to a playable result."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from diffusers import CogVideoXPipeline, CogVideoXTransformer3DModel, FluxPipeline
from torch import Tensor

from models.config import full_config
from models.shot_decoder import ShotDecoder, add_lora, decoder_options, is_motion, unfreeze_for_adaptation
from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.small_run import small_dataset
from tests.support.networks.tiny_baselines import brief_baseline, brief_config
from training.baselines.agents import load_baseline
from training.baselines.config import BaselineConfig, BaselineKind, full, tiny
from training.baselines.encoding import fill_features, open_features
from training.baselines.folder import BaselineFolder, new_baseline
from training.baselines.phases import AdapterPhase, NoisedPictures, TextToPicture, gc_phase, gfc_phase
from training.baselines.pipelines import LORA, add_adapters, save_adapters
from training.baselines.run import train_baseline
from training.config import LoopSettings
from training.data.feature_cache import FeatureCache, share_out
from training.data.order import Position
from training.data.shards import open_shards
from training.data.turns import Catalog, read_turns
from training.recipes import read_recipe
from training.run_folder import RunFolder
from training.trainer import StepReport, Trainer

KINDS: tuple[BaselineKind, ...] = ("gc", "gfc")


def clips_config(kind: BaselineKind) -> BaselineConfig:
    """Configuration of a brief baseline for the 16 frames of the dataset's clips."""
    config = brief_config(kind)
    return config.model_copy(update={"video": config.video.model_copy(update={"frames": 17})})


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, films=1, scenes=1, clips=2, captioner=MODEL), ShardSettings(samples=3, val_share=0))
    return Catalog.read(open_shards(root, "train"))


@dataclass(frozen=True)
class Start:
    """Initial baseline with its features of the clips."""

    baseline: BaselineFolder
    cache: FeatureCache


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, catalog: Catalog) -> Callable[[BaselineKind], Start]:
    @cache
    def made(kind: BaselineKind) -> Start:
        folder = tmp_path_factory.mktemp(kind)
        baseline = new_baseline(folder / kind, clips_config(kind), seed=1)
        features = open_features(baseline, folder / "features", catalog)
        fill_features(baseline, share_out([features], tuple(features.features), Accelerator()))
        return Start(baseline, features)

    return made


def phase_of(start: Start) -> AdapterPhase:
    make: Callable[..., AdapterPhase] = {"gc": gc_phase, "gfc": gfc_phase}[start.baseline.config.kind]
    return make(start.baseline, start.cache, start.cache)


@pytest.mark.slow
def test_features_equal_the_inputs_of_the_pipelines_and_are_made_once(
    catalog: Catalog, start: Callable[[BaselineKind], Start]
) -> None:
    turn, baseline, cache = catalog.turns[0], start("gfc").baseline, start("gfc").cache
    flux = FluxPipeline.from_pretrained(str(baseline.folder / "bases/picture"))
    prompt_BND, pooled_BD, _ = flux.encode_prompt([turn.instruction], max_sequence_length=16)
    torch.testing.assert_close(cache.get("flux_prompts", turn.clip_id), prompt_BND[0].detach())
    torch.testing.assert_close(cache.get("flux_pooled", turn.clip_id), pooled_BD[0].detach())
    (packed, *_) = read_turns(catalog.shards)
    first_HWC = packed.frames(32, 48)[0].numpy().astype(np.float32) / 255
    pixels_BCHW = flux.image_processor.preprocess(first_HWC[None])
    mean_BCHW = flux.vae.encode(pixels_BCHW).latent_dist.mean
    torch.testing.assert_close(cache.get("flux_pictures", turn.clip_id)[0], mean_BCHW[0].detach())
    made: list[str] = []
    work = share_out([cache], tuple(cache.features), Accelerator())
    fill_features(baseline, work, progress=lambda name, *_: made.append(name))
    assert made == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gfc", pytest.param("gc", marks=pytest.mark.slow)])
def test_the_randomness_of_an_example_follows_from_its_position(
    kind: BaselineKind, tmp_path: Path, start: Callable[[BaselineKind], Start]
) -> None:
    phase = phase_of(start(kind))
    one, again, other = (phase.collate([phase.examples[Position(epoch, 0)]]) for epoch in (0, 0, 1))
    for name, value in vars(one).items():
        assert _equal(value, vars(again)[name])
    assert not torch.equal(next(iter(vars(one).values())), next(iter(vars(other).values())))
    trained = [name for name, parameter in phase.network.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora" in name or (kind == "gc" and ".linear." in name) for name in trained)


@pytest.mark.slow
def test_gc_trains_the_parts_of_the_shot_decoder() -> None:
    def trained(network: torch.nn.Module) -> dict[str, int]:
        return {name: each.numel() for name, each in network.named_parameters() if each.requires_grad}

    config = full_config()
    with torch.device("meta"):
        decoder, transformer = ShotDecoder(**decoder_options(config)), CogVideoXTransformer3DModel()
    add_lora(decoder, config.shot_decoder)
    unfreeze_for_adaptation(decoder)
    gc = full("gc").video
    add_adapters(transformer, gc.lora_rank, adaln=gc.adaln)
    ours = {name: size for name, size in trained(decoder).items() if not is_motion(name)}
    assert trained(transformer) == ours
    assert sum(ours.values()) == 384_076_800


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:  # shots that continue none
        return one is other
    return torch.equal(one, other) if isinstance(one, Tensor) else all(map(torch.equal, one, other))


@pytest.mark.slow
def test_some_clips_are_trained_without_text(catalog: Catalog, start: Callable[[BaselineKind], Start]) -> None:
    baseline, cache = start("gc").baseline, start("gc").cache
    pipeline = CogVideoXPipeline.from_pretrained(str(baseline.folder / "bases/video"))
    silence_ND = pipeline.encode_prompt("", max_sequence_length=32)[1][0].detach()
    examples = gc_phase(baseline, cache, dropout=0.3).examples
    drawn_from = [examples[Position(epoch, 0)].conditions[0] for epoch in range(200)]
    silent = sum(torch.allclose(text_ND, silence_ND, atol=1e-5) for text_ND in drawn_from)
    assert 35 < silent < 85
    text_ND = cache.get("prompts", catalog.turns[0].clip_id)
    assert silent + sum(torch.equal(each_ND, text_ND) for each_ND in drawn_from) == 200
    assert torch.equal(examples.at_noise_level(0, 5).conditions[0], text_ND)


@torch.no_grad()
def test_the_objective_of_flux_is_the_velocity_from_noise_to_picture() -> None:
    class Knowing(torch.nn.Module):
        """Transformer that knows picture and noise, and records its inputs."""

        def __init__(self) -> None:
            super().__init__()
            self.x_embedder = torch.nn.Linear(1, 1)
            self.config = SimpleNamespace(guidance_embeds=True)

        def forward(self, **asked: Any) -> tuple[Tensor]:
            self.asked = asked
            return (packed(noise_BCHW - picture_BCHW) + 0.5,)

    def packed(latents_BCHW: Tensor) -> Tensor:
        """Squares of 2 x 2, row by row, each channel by channel."""
        squares = latents_BCHW.unfold(2, 2, 2).unfold(3, 2, 2)
        return squares.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)

    picture_BCHW, noise_BCHW, sigma_B = torch.randn(2, 4, 4, 6), torch.randn(2, 4, 4, 6), torch.tensor([0.25, 0.75])
    network = TextToPicture(Knowing(), guidance=3.5)
    batch = NoisedPictures(picture_BCHW, noise_BCHW, sigma_B, torch.randn(2, 16, 32), torch.randn(2, 32))
    torch.testing.assert_close(network(batch)["loss"], torch.tensor([0.25, 0.25]))
    asked = network.transformer.asked
    mixed = [0.75 * picture_BCHW[0] + 0.25 * noise_BCHW[0], 0.25 * picture_BCHW[1] + 0.75 * noise_BCHW[1]]
    torch.testing.assert_close(asked["hidden_states"], packed(torch.stack(mixed)))
    torch.testing.assert_close(asked["timestep"], sigma_B)  # in units of a thousandth of a timestep
    torch.testing.assert_close(asked["guidance"], torch.tensor([3.5, 3.5]))
    assert asked["img_ids"].tolist() == [[0, row, column] for row in range(2) for column in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_learn_two_clips_and_the_result_plays(
    kind: BaselineKind, tmp_path: Path, start: Callable[[BaselineKind], Start]
) -> None:
    phase = phase_of(start(kind))
    steps = 40
    loop = LoopSettings(
        steps=steps, batch_size=4, micro_batch=4, learning_rate=1e-2, schedule="constant", save_every=20,
        validate_every=20,
    )  # fmt: skip
    reports: list[StepReport] = []
    result = Trainer(phase, loop, tmp_path / "run", Accelerator(cpu=True)).run(reports.append)
    losses = [report.figures["val/loss"] for report in reports if "val/loss" in report.figures]
    untrained = phase_of(start(kind))
    with torch.no_grad():
        before = untrained.validate(untrained.network, torch.device("cpu"), tmp_path)["loss"]
    assert math.isfinite(before)
    assert losses[-1] < 0.9 * before
    assert (result / LORA).read_bytes() != (phase.start.folder / LORA).read_bytes()
    turns = list(load_baseline(result).play(["one", "two", "three"]))
    assert [turn.number for turn in turns] == [1, 2, 3]
    assert [len(turn.frames_THWC) for turn in turns] == [16 if kind == "gc" else 17] * 3  # the clips have 16


def test_the_given_state_is_exported(tmp_path: Path, start: Callable[[BaselineKind], Start]) -> None:
    phase = phase_of(start("gfc"))
    state = {name: tensor + ("lora" in name) for name, tensor in phase.network.state_dict().items()}
    (tmp_path / "out").mkdir()
    phase.export(tmp_path / "out", state)
    phase.network.load_state_dict(state)
    save_adapters(tmp_path / "same", phase.network.get_submodule("transformer"), adaln=False)
    assert (tmp_path / "out" / LORA).read_bytes() == (tmp_path / "same" / LORA).read_bytes()
    assert BaselineFolder.open(tmp_path / "out").config == phase.start.config


def test_a_start_of_another_size_is_made_anew_until_training_has_begun_from_it(tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run", str(small_dataset()), trackers=())
    phase, start = place.folder / "gc", place.folder / "start-gc"
    (phase / "result").mkdir(parents=True)  # nothing is trained
    shutil.copytree(brief_baseline("gc"), start)
    train_baseline("gc", place, read_recipe("tiny"))
    made = BaselineFolder.open(start)
    identity = made.identity()
    assert made.config == tiny("gc")
    (tmp_path / "seed.toml").write_text("[shot.joint]\nseed = 1\n", encoding="utf-8")
    train_baseline("gc", place, read_recipe("tiny", path=tmp_path / "seed.toml"))
    assert made.identity() == identity, "it stays the start of what was begun"
    of_full = read_recipe("full").model_copy(update={"gc": read_recipe("tiny").gc})
    with pytest.raises(UserError, match=rf"start-gc is of size tiny.* of size full: .*remove {phase} to"):
        train_baseline("gc", place, of_full)


def test_a_baseline_without_adapters_has_nothing_to_train(tmp_path: Path, catalog: Catalog) -> None:
    baseline = BaselineFolder.open(brief_baseline("gsc"))
    with pytest.raises(UserError, match="gsc has no adapters to train"):
        open_features(baseline, tmp_path, catalog)
    with pytest.raises(UserError, match="gsc has no adapters to train"):
        baseline.transformer()
