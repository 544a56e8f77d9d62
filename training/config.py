"""Settings of a training run: the model's shape and the settings of each phase, immutable and range-checked.

A `Recipe` determines the resulting weights, apart from data, starting checkpoint and the rounding of the device.
`training/recipes.py` has functions that return complete recipes; a TOML file overrides single keys.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from models.config import ModelConfig
from models.engine_options import check_steps
from pipeline.core.errors import UserError
from pipeline.core.settings import Settings

Precision = Literal["no", "fp16", "bf16", "auto"]
Names = Literal["joined", "apart"]
Predictions = Literal["own", "rollout"]
Beta = Annotated[float, Field(ge=0, lt=1)]


def _divides(steps: int) -> int:
    try:
        check_steps(steps)
    except UserError as error:
        raise ValueError(error) from error
    return steps


DenoisingSteps = Annotated[int, AfterValidator(_divides)]
Share = Field(0.1, ge=0, lt=1, description="share of examples trained without their conditions, for guidance")
Autocast: Precision = Field(
    "no", description="precision of autocast; `auto` is bf16 where that is faster. Trained weights are always float32"
)


class WindowSettings(Settings):
    """Rules for the turns that one window may contain."""

    later_keys = frozenset({"longest_share", "packed"})

    most_turns: int = Field(5, ge=1, le=20, description="maximum turns in a window, including the predicted one")
    longest_share: float | None = Field(
        None, gt=0, lt=1, description="share of the windows that have most_turns; unset: as many of every length"
    )
    packed: bool = Field(
        False, description="every turn of a window is a target after those before it; windows are as long as they can"
    )
    across_scenes: bool = Field(True, description="a window may span a cut")
    most_gap: int = Field(1, ge=0, description="dropped clips of one scene that a window may skip in a row")

    @model_validator(mode="after")
    def _check_packed(self) -> Self:
        if self.packed and self.longest_share is not None:
            raise ValueError("packed windows are all as long as they can be: leave longest_share out")
        return self


class LoopSettings(Settings):
    """Settings of one run of the training loop."""

    later_keys = frozenset(
        {"minimum_rate", "betas", "epsilon", "ema_on_cpu", "snapshot_every", "optimizer"}
        | {"save_minutes", "validate_minutes", "compile"}
    )

    steps: int = Field(ge=0, description="optimizer steps; 0 skips this part")
    batch_size: int = Field(ge=1, description="examples per step, summed over all processes")
    micro_batch: int = Field(
        1, ge=1, description="maximum examples per forward pass of a process; gradients are added up"
    )
    compile: bool = Field(False, description="compile the blocks of the network on a GPU: faster, with other rounding")
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="`muon` is for matrices trained from scratch; AdamW trains the rest with the same rate"
    )
    learning_rate: float = Field(gt=0, description="peak learning rate, reached after its warm-up")
    rate_warm_up: int = Field(0, ge=0, description="steps of linear learning-rate warm-up from 0")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="learning-rate schedule after the warm-up")
    minimum_rate: float = Field(0.0, ge=0, le=1, description="end of the cosine, as a share of the peak learning rate")
    betas: tuple[Beta, Beta] = Field((0.9, 0.999), description="AdamW's decay of its averages: gradient, its square")
    epsilon: float = Field(1e-8, gt=0, description="AdamW's addend to the root of the averaged squares")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay; not of norms, adaLN, biases, embeddings")
    clip_norm: float = Field(1.0, gt=0, description="maximum gradient norm")
    seed: int = Field(0, ge=0, description="seed of everything random: order, noise, dropout")
    ema_decay: float = Field(0.0, ge=0, lt=1, description="decay of the exported average of the weights; 0 for none")
    ema_on_cpu: bool = Field(False, description="keep the average in main memory: slower, less GPU memory")
    save_every: int = Field(500, ge=1, description="steps between saved states")
    save_minutes: float = Field(0.0, ge=0, description="minutes after which a state is saved too; 0 for no such limit")
    keep: int = Field(2, ge=1, description="saved states kept on disk")
    snapshot_every: int = Field(
        0, ge=0, description="steps between checkpoints to play, which are never removed; 0 writes none"
    )
    validate_every: int = Field(1000, ge=1, description="steps between validations on held-out clips")
    validate_minutes: float = Field(0.0, ge=0, description="minutes after which to validate too; 0 for no such limit")
    loader_workers: int = Field(0, ge=0, description="processes that read examples; 0 reads them while training")


_NO_STEPS = LoopSettings(steps=0, batch_size=1, learning_rate=1e-4)


class FitSettings(Settings):
    """Settings of the autoencoder fit. The defaults are for a few dozen clips and two cores."""

    later_keys = frozenset({"precision", "crop", "changes"})

    stills: LoopSettings = LoopSettings(
        steps=1800, batch_size=4, micro_batch=4, learning_rate=4e-3, rate_warm_up=30, weight_decay=0.0,
        save_every=500, validate_every=100_000,
    )  # fmt: skip
    clips: LoopSettings = LoopSettings(
        steps=400, batch_size=2, micro_batch=2, learning_rate=2e-3, rate_warm_up=20, weight_decay=0.0,
        save_every=200, validate_every=100_000,
    )  # fmt: skip
    most_clips: int = Field(256, ge=1, description="maximum number of clips read from each split, evenly spaced")
    crop: float = Field(
        0.5, gt=0, le=1, description="height and width of a crop as a share of the frame; 1 is better but slower"
    )
    divergence: float = Field(1e-5, ge=0, description="weight of the latents' KL divergence from unit normal")
    changes: float = Field(
        0.0, ge=0, description="weight of the squared error of changes from frame to frame, most of it in what moves"
    )
    precision: Precision = Autocast
    measured: int = Field(12, ge=1, description="clips of each split whose reconstruction is measured")
    pictures: int = Field(4, ge=0, description="number of these clips that are saved with their reconstructions")


class ValidationSettings(Settings):
    """Settings of validation."""

    later_keys = frozenset({"games"})

    clips: int = Field(64, ge=1, description="held-out clips whose loss is measured, spread over films and time")
    pictures: int = Field(4, ge=0, description="clips sampled from their conditions, always with the same seeds")
    games: int = Field(4, ge=0, description="games rolled out per split and length, on the game model's own past")
    denoising_steps: DenoisingSteps = Field(25, description="denoising steps of sampled clips; a divisor of 1000")
    guidance: float = Field(6.0, ge=1, description="guidance scale of sampled clips; 1 is none")


class MixtureSettings(Settings):
    """Settings of several datasets trained on together."""

    names: Names = Field(
        "joined",
        description="whether a name in several casts is one character, or several, prefixed by their dataset's name",
    )


class FeatureSettings(Settings):
    """Settings of the features that are encoded before training."""

    tiled: bool = Field(
        False, description="encode latents clip by clip and in tiles: for small cards, with slight seams"
    )


class ShotPhaseSettings(Settings):
    """Settings of phase a: the shot encoder alone, then shot encoder and shot decoder together."""

    warm_up: LoopSettings = Field(description="warm-up: shot encoder and motion scope, with the shot decoder frozen")
    joint: LoopSettings = Field(description="joint training of shot encoder and shot decoder")
    trained: Literal["adapters", "whole"] = Field(
        "adapters", description="part of the shot decoder trained jointly; `whole` is for a random base with adapters"
    )
    dropout: float = Share
    frame: Literal["first", "random"] = Field(
        "first", description="frame for the shot encoder; `random` is an ablation"
    )
    precision: Precision = Autocast
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class GamePhaseSettings(Settings):
    """Settings of phase b: the game model on windows of turns."""

    loop: LoopSettings
    alpha: float = Field(1.0, ge=0, description="weight of the squared error of the shot tokens")
    beta: float = Field(0.0, ge=0, description="weight of their cosine distance; an ablation has alpha = beta = 0.5")
    windows: WindowSettings = WindowSettings()
    free_text: float = Field(0.5, ge=0, le=1, description="share of instructions in other words than the three fields")
    precision: Precision = Autocast
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class AdaptPhaseSettings(Settings):
    """Settings of phase c: the shot decoder on the game model's predictions."""

    later_keys = frozenset({"predictions"})

    loop: LoopSettings
    predictions: Predictions = Field(
        "own", description="`own` predicts after the recorded past, `rollout` after its own predictions"
    )
    dropout: float = Share
    precision: Precision = Autocast
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class DistillPhaseSettings(Settings):
    """Settings of phase d: guidance into the weights of the shot decoder, then few denoising steps."""

    guide: LoopSettings = Field(_NO_STEPS, description="first part: the student learns the guided velocity")
    guidance: float | None = Field(None, ge=1, description="guidance scale to learn; unset: the checkpoint's own")
    loop: LoopSettings = Field(_NO_STEPS, description="second part: few steps, by matching the teacher's distribution")
    denoising_steps: DenoisingSteps = Field(4, description="denoising steps of the result; a divisor of 1000")
    generator_every: int = Field(5, ge=1, description="the student learns in every so many-th step, the critic in each")
    critic_rate: float = Field(1.0, gt=0, description="learning rate of the critic, as a factor of the student's")
    critic_rank: int = Field(64, ge=1, le=4096, description="rank of the adapters that make the teacher the critic")
    adversarial: float = Field(0.0, ge=0, description="weight of the adversarial term in the student's loss; 0: none")
    precision: Precision = Autocast
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class BaselineSettings(Settings):
    """Training settings of a baseline with adapters."""

    loop: LoopSettings
    dropout: float = Share
    precision: Precision = Autocast
    gradient_checkpointing: bool = Field(False, description="forward again in the backward pass: slower, less memory")


class Recipe(Settings):
    """Complete settings of a training run, apart from the data and the starting checkpoint."""

    later_keys = frozenset({"data", "features", "distill"})

    model: ModelConfig
    autoencoder: FitSettings | None = Field(None, description="fit of a tiny autoencoder to the clips before training")
    data: MixtureSettings = MixtureSettings()
    features: FeatureSettings = FeatureSettings()
    shot: ShotPhaseSettings
    game: GamePhaseSettings
    adapt: AdaptPhaseSettings
    distill: DistillPhaseSettings = DistillPhaseSettings()
    gc: BaselineSettings = Field(description="the baseline GC: adapters of CogVideoX on the instructions")
    gfc: BaselineSettings = Field(description="the baseline GFC: adapters of FLUX on first frames")
    validation: ValidationSettings = ValidationSettings()

    @model_validator(mode="after")
    def _check_window_length(self) -> Self:
        if self.game.windows.most_turns > self.model.game_model.window_turns:
            raise ValueError(
                f"game.windows.most_turns is {self.game.windows.most_turns}, but the game model sees only "
                f"model.game_model.window_turns = {self.model.game_model.window_turns}: reduce most_turns"
            )
        return self
