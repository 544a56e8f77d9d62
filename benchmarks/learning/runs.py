"""Training runs of the learning benchmark, and the measurements of their results.

Each run has a folder and is skipped if its result exists: claims share runs, and a killed run resumes. All training is
by the ordinary `TrainingRun` on ordinary shards.

Letters of the shapes: N clips, T frames, H W pixels, C colours (RGB), L shot tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from examples.world.learning_films import MOTION
from flows.console.progress import TrainBars
from flows.console.terminal import say
from models.checkpoint import Checkpoint
from models.checkpoint_writer import copy_rest, save_config, writing
from models.config import ModelConfig
from models.frames import decode_latents
from pipeline.stages.motion import measure_frames, open_optical_flow
from pipeline.video.clip_files import read_clip_gray, write_clip
from training.config import FitSettings, Recipe
from training.data.definitions import FROZEN, Name, open_cache
from training.phases.assembly import SplitData, adapt_phase, game_phase, shot_phase
from training.phases.game import GameExample, GamePhase
from training.phases.shot import ShotPhase
from training.recipes import merged, tiny
from training.run import TrainingRun
from training.run_folder import RunFolder

TrainedPart = Literal["shot", "game", "adapt"]
_READ: Mapping[TrainedPart, tuple[Name, ...]] = {
    "shot": FROZEN,
    "game": (*FROZEN[1:], "shot_tokens"),
    "adapt": (*FROZEN, "shot_tokens", "predictions"),
}
_STEPS = 20
"""Denoising steps per drawn clip."""
_ALONE: dict[str, Any] = {
    "shot": {"warm_up": {"steps": 0}, "joint": {"steps": 0}},
    "game": {"loop": {"steps": 0}, "free_text": 0.0},
    "adapt": {"loop": {"steps": 0}},
    "validation": {"clips": 100, "pictures": 0},
}
"""Changes to a recipe that set the steps of all phases to 0; instructions are learned as they are recorded."""


@dataclass(frozen=True)
class Learned:
    """Finished part of training: its recipe, the checkpoints before and after, and the data to measure on."""

    recipe: Recipe
    before: Checkpoint
    after: Checkpoint
    split: SplitData

    def shots(self, checkpoint: Checkpoint) -> ShotPhase:
        """Return the joint phase with the networks of a checkpoint, for evaluation on the clips of `split`."""
        phase = shot_phase("joint", self.recipe, checkpoint, checkpoint.config, self.split, self.split)
        phase.network.eval()
        return phase

    def adaptation(self, checkpoint: Checkpoint) -> ShotPhase:
        """Return the adaptation phase, likewise."""
        phase = adapt_phase(self.recipe, checkpoint, checkpoint.config, self.split, self.split)
        phase.network.eval()
        return phase

    def games(self, checkpoint: Checkpoint) -> GamePhase:
        """Return the phase of the game model, likewise."""
        phase = game_phase(self.recipe, checkpoint, checkpoint.config, self.split, self.split)
        phase.network.eval()
        return phase


def recipe_of(part: TrainedPart, loop: Mapping[str, Any], **changes: Any) -> Recipe:
    """Return the recipe `tiny` for only one part of training, with changes to its loop and to the whole."""
    loop = {"save_every": 1000, "validate_every": 100_000, **loop}
    trained = {str(part): {"joint" if part == "shot" else "loop": loop}}
    return Recipe.model_validate(merged(merged(merged(tiny().model_dump(), _ALONE), trained), changes))


def fit_settings(stills: int, clips: int) -> FitSettings:
    """Return the settings of an autoencoder fit with these steps."""
    settings = FitSettings(measured=100, pictures=5)
    loops = {"stills": {"steps": stills}, "clips": {"steps": clips}}
    return FitSettings.model_validate(merged(settings.model_dump(), loops))


def say_if_earlier(result: Path) -> None:
    """Say of a result that exists that it is used as it is: other code may have made it."""
    if result.exists():
        say(f"{result} is of an earlier run: remove it, or the folder of the benchmark, to measure the present code")


def learn(
    part: TrainedPart,
    folder: Path,
    data: Path,
    start: Checkpoint,
    recipe: Recipe,
) -> Learned:
    """Run one part of training unless its result exists.

    Args:
        part: part of training.
        folder: folder of the run.
        data: dataset folder.
        start: initial checkpoint.
        recipe: recipe from `recipe_of`.
    """
    say_if_earlier(folder / {"shot": "joint"}.get(part, part) / "result")
    bars = TrainBars()
    run_folder = RunFolder(folder, str(data), say=bars.say, watch=bars.step)
    run = TrainingRun(run_folder, recipe, start.folder)
    with bars.shown():
        after = Checkpoint.open({"shot": run.shot, "game": run.game, "adapt": run.adapt}[part]())
    catalog = run_folder.catalogs()["train"]
    cache = open_cache(run_folder.features, catalog, start, recipe, _READ[part])
    return Learned(recipe, start, after, SplitData(catalog, cache))


def with_config(checkpoint: Checkpoint, folder: Path, config: ModelConfig) -> Checkpoint:
    """Copy a checkpoint with another configuration and the same weights."""
    if not folder.exists():
        with writing(folder) as part:
            save_config(part, config)
            copy_rest(checkpoint, part, ())
    return Checkpoint.open(folder)


@torch.no_grad()
def shot_loss(phase: ShotPhase) -> float:
    """Return the mean loss over `training.phases.shot.NOISE_LEVELS` and all clips, with fixed noise."""
    return phase.validate(phase.network, torch.device("cpu"), Path())["loss"]


@torch.no_grad()
def game_terms(phase: GamePhase, examples: Iterable[GameExample]) -> dict[str, float]:
    """Return the means over examples of the terms of the game model's loss."""
    rows = [phase.network(phase.collate([example])) for example in examples]
    return {name: float(torch.cat([row[name] for row in rows]).mean()) for name in rows[0]}


@torch.no_grad()
def draw(phase: ShotPhase, item: int, scope_px: float, guidance: float = 1.5) -> Tensor:
    """Draw a clip from its conditions and a motion scope, with fixed noise: frames THWC, uint8 RGB."""
    examples = phase.held_out
    latents_BTCHW = phase.network.draw(
        examples.conditions(item), tuple(examples.absent.values()), scope_px, seed=0, steps=_STEPS, guidance=guidance
    )
    return decode_latents(phase.checkpoint.autoencoder(), latents_BTCHW)[0]


def measured_scope(frames_THWC: Tensor, file: Path) -> float:
    """Write RGB frames as a clip file and return its motion scope, measured as in the data pipeline."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_clip(file, frames_THWC.numpy()[..., ::-1], Fraction(8), crf=17)
    (found,) = measure_frames([read_clip_gray(file)], open_optical_flow(MOTION), MOTION.background_px)
    return found.scope_px
