"""Training runs of the proof that the model learns, and how what they learned is measured.

Each run has its folder and is not run again where its result is there: claims share them, and a run that was killed
goes on. Everything is trained by the ordinary `TrainingRun` on ordinary shards.

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

from flows.console.training_bars import TrainBars
from flows.demos.world.learning_films import MOTION
from models.checkpoint import Checkpoint, copy_rest, save_config, writing
from models.config import ModelConfig
from models.frames import decode_latents
from pipeline.stages.motion import measure_frames, open_optical_flow
from pipeline.video.clip_files import read_clip_gray, write_clip
from training.config import Recipe
from training.data.encoding import FROZEN, Name, open_cache
from training.data.shards import open_shards
from training.data.turns import Catalog
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
"""Denoising steps of what is drawn."""
_ALONE: dict[str, Any] = {
    "shot": {"warm_up": {"steps": 0}, "joint": {"steps": 0}},
    "game": {"loop": {"steps": 0}},
    "adapt": {"loop": {"steps": 0}},
    "looks": {"clips": 100, "pictures": 0},
}
"""Changes to a recipe of all phases, so that it trains none."""


@dataclass(frozen=True)
class Learned:
    """One part of training, done: what it started from, what came out, and what it was trained on."""

    recipe: Recipe
    before: Checkpoint
    after: Checkpoint
    split: SplitData

    def shots(self, checkpoint: Checkpoint) -> ShotPhase:
        """Joint training with the networks of a checkpoint, ready to be judged on the clips it was trained on."""
        phase = shot_phase("joint", self.recipe, checkpoint, checkpoint.config, self.split, self.split)
        phase.network.eval()
        return phase

    def adaptation(self, checkpoint: Checkpoint) -> ShotPhase:
        """The same of adaptation."""
        phase = adapt_phase(self.recipe, checkpoint, checkpoint.config, self.split, self.split)
        phase.network.eval()
        return phase

    def games(self, checkpoint: Checkpoint) -> GamePhase:
        """The same of the game model."""
        phase = game_phase(self.recipe, checkpoint, checkpoint.config, self.split, self.split)
        phase.network.eval()
        return phase


def recipe_of(part: TrainedPart, loop: Mapping[str, Any], **changes: Any) -> Recipe:
    """The recipe `tiny` for one part of training alone, with changes to its loop and to the whole."""
    loop = {"save_every": 1000, "validate_every": 100_000, **loop}
    trained = {str(part): {"joint" if part == "shot" else "loop": loop}}
    return Recipe.model_validate(merged(merged(merged(tiny().model_dump(), _ALONE), trained), changes))


def learn(part: TrainedPart, folder: Path, data: Path, start: Checkpoint, recipe: Recipe) -> Learned:
    """Run one part of training, or find it done.

    Args:
        part: which.
        folder: of the run.
        data: the data set folder.
        start: where it starts.
        recipe: from `recipe_of`.
    """
    bars = TrainBars()
    run = TrainingRun(RunFolder(folder, str(data), say=bars.say, watch=bars.step), recipe, start.folder)
    with bars.shown():
        after = Checkpoint.open({"shot": run.shot, "game": run.game, "adapt": run.adapt}[part]())
    catalog = Catalog.read(open_shards(data, "train"))
    return Learned(
        recipe, start, after, SplitData(catalog, open_cache(folder / "features", catalog, start, recipe, _READ[part]))
    )


def with_config(checkpoint: Checkpoint, folder: Path, config: ModelConfig) -> Checkpoint:
    """The same weights under another configuration."""
    if not folder.exists():
        with writing(folder) as part:
            save_config(part, config)
            copy_rest(checkpoint, part, ())
    return Checkpoint.open(folder)


@torch.no_grad()
def shot_loss(phase: ShotPhase) -> float:
    """Loss over `training.phases.shot.NOISE_LEVELS` and all clips, always with the same noise."""
    return phase.validate(phase.network, torch.device("cpu"), Path())["loss"]


@torch.no_grad()
def game_terms(phase: GamePhase, examples: Iterable[GameExample]) -> dict[str, float]:
    """Means over examples of the terms of the game model's loss."""
    rows = [phase.network(phase.collate([example])) for example in examples]
    return {name: float(torch.cat([row[name] for row in rows]).mean()) for name in rows[0]}


@torch.no_grad()
def draw(phase: ShotPhase, item: int, scope_px: float, guidance: float = 1.5) -> Tensor:
    """Draw a clip from its conditions and a motion scope, always from the same noise: frames THWC, uint8 RGB."""
    examples = phase.held_out
    latents_BTCHW = phase.network.draw(
        examples.conditions(item), tuple(examples.absent.values()), scope_px, seed=0, steps=_STEPS, guidance=guidance
    )
    return decode_latents(phase.checkpoint.autoencoder(), latents_BTCHW)[0]


def measured_scope(frames_THWC: Tensor, file: Path) -> float:
    """The motion scope of RGB frames as the data pipeline measures it: of the clip file, which is written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_clip(file, frames_THWC.numpy()[..., ::-1], Fraction(8), crf=17)
    (found,) = measure_frames([read_clip_gray(file)], open_optical_flow(MOTION), MOTION.background_px)
    return found.scope_px
