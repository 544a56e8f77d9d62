"""What a training run is: the shape of the model, and for each phase how it is trained. Frozen, bounded, complete.

A `Recipe` says everything that decides which weights come out, apart from the data and the checkpoint it starts from.
`training/recipes.py` has functions that return complete ones; a TOML file changes single keys.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from models.config import ConfigSection, ModelConfig
from models.diffusion import check_steps

Precision = Literal["no", "fp16", "bf16"]
Share = Field(0.1, ge=0, lt=1, description="share of the examples whose condition is left out, for guidance")


class WindowSettings(ConfigSection):
    """Which turns may stand in one window."""

    most_turns: int = Field(5, ge=1, le=20, description="turns in a window, the one to predict included")
    across_scenes: bool = Field(True, description="a window goes on over a cut")
    across_gaps: bool = Field(False, description="a window goes on where clips in between were dropped")


class LoopSettings(ConfigSection):
    """One run of the training loop."""

    steps: int = Field(ge=0, description="optimizer steps; 0 leaves this part out")
    batch_size: int = Field(ge=1, description="examples in a step, of all processes together")
    micro_batch: int = Field(1, ge=1, description="examples a process takes at once; gradients are accumulated")
    learning_rate: float = Field(gt=0, description="after the warm-up of the rate")
    rate_warm_up: int = Field(0, ge=0, description="steps in which the learning rate rises from 0")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="of the learning rate after that")
    weight_decay: float = Field(0.01, ge=0, description="of AdamW")
    clip_norm: float = Field(1.0, gt=0, description="the gradient's norm is cut to this")
    seed: int = Field(0, ge=0, description="of everything random: order, noise, dropout")
    ema_decay: float = Field(0.0, ge=0, lt=1, description="of the averaged weights that are exported; 0: no average")
    save_every: int = Field(500, ge=1, description="steps between two saved states")
    keep: int = Field(2, ge=1, description="saved states that stay on disk")
    validate_every: int = Field(1000, ge=1, description="steps between two looks at the held-out clips")
    loader_workers: int = Field(0, ge=0, description="processes that read examples; 0: the training process itself")

    @model_validator(mode="after")
    def _shares_out(self) -> Self:
        if self.batch_size % self.micro_batch:
            raise ValueError(f"batch_size {self.batch_size} is no multiple of micro_batch {self.micro_batch}")
        return self


class FitSettings(ConfigSection):
    """How an autoencoder is fitted. The defaults take some five minutes on two cores for a few dozen clips."""

    stills: LoopSettings = LoopSettings(
        steps=1800, batch_size=4, micro_batch=4, learning_rate=4e-3, rate_warm_up=30, weight_decay=0.0,
        save_every=500, validate_every=100_000,
    )  # fmt: skip
    clips: LoopSettings = LoopSettings(
        steps=400, batch_size=2, micro_batch=2, learning_rate=2e-3, rate_warm_up=20, weight_decay=0.0,
        save_every=200, validate_every=100_000,
    )  # fmt: skip
    most_clips: int = Field(256, ge=1, description="clips of each split that are read, spread over it evenly")
    divergence: float = Field(1e-5, ge=0, description="weight of the latents' divergence from unit normal ones")
    judged: int = Field(12, ge=1, description="clips of each split whose reconstruction is measured")
    pictures: int = Field(4, ge=0, description="of these, shown beside their reconstructions")


class LookSettings(ConfigSection):
    """What validation looks at."""

    clips: int = Field(64, ge=1, description="held-out clips whose loss is taken, the first of the split")
    pictures: int = Field(4, ge=0, description="clips drawn from their conditions, always with the same seeds")
    denoising_steps: int = Field(25, ge=1, description="of those clips; a divisor of 1000")
    guidance: float = Field(6.0, ge=1, description="of those clips; 1 is none")

    @model_validator(mode="after")
    def _ends_clean(self) -> Self:
        check_steps(self.denoising_steps)
        return self


class ShotPhaseSettings(ConfigSection):
    """Phase a: shot encoder, then shot encoder and shot decoder together."""

    warm_up: LoopSettings = Field(description="shot encoder and motion scope alone, the shot decoder frozen")
    joint: LoopSettings = Field(description="both")
    trained: Literal["adapters", "whole"] = Field(
        "adapters", description="of the shot decoder in joint training; `whole` is for one whose base is random"
    )
    dropout: float = Share
    frame: Literal["first", "random"] = Field("first", description="frame that the shot encoder sees; `random` ablates")
    precision: Precision = Field("no", description="autocast; trained weights are float32 in any case")
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class GamePhaseSettings(ConfigSection):
    """Phase b: the game model on windows of turns."""

    loop: LoopSettings
    alpha: float = Field(1.0, ge=0, description="weight of the squared error of the shot tokens")
    beta: float = Field(0.0, ge=0, description="weight of their cosine distance; an ablation has alpha = beta = 0.5")
    windows: WindowSettings = WindowSettings()
    precision: Precision = Field("no", description="autocast; trained weights are float32 in any case")
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class AdaptPhaseSettings(ConfigSection):
    """Phase c: the shot decoder on the game model's own predictions."""

    loop: LoopSettings
    dropout: float = Share
    precision: Precision = Field("no", description="autocast; trained weights are float32 in any case")
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class BaselineSettings(ConfigSection):
    """A baseline with something to train."""

    loop: LoopSettings
    dropout: float = Share
    precision: Precision = Field("no", description="autocast; trained weights are float32 in any case")
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class Recipe(ConfigSection):
    """Everything that decides what comes out of training, besides the data and where it starts."""

    model: ModelConfig
    autoencoder: FitSettings | None = Field(None, description="fit a tiny one to the clips first")
    shot: ShotPhaseSettings
    game: GamePhaseSettings
    adapt: AdaptPhaseSettings
    gc: BaselineSettings = Field(description="the baseline GC: adapters of CogVideoX on the instructions")
    gfc: BaselineSettings = Field(description="the baseline GFC: adapters of FLUX on first frames")
    looks: LookSettings = LookSettings()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.game.windows.most_turns > self.model.game_model.window_turns:
            raise ValueError(
                f"game.windows.most_turns is {self.game.windows.most_turns}, but in play the game model sees "
                f"model.game_model.window_turns = {self.model.game_model.window_turns}: take as many at most"
            )
        return self
