"""Request of a training run: the parameters of its flow, light enough for the command line."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from pipeline.plan.request import without_secrets


class RecipeName(StrEnum):
    """Names of the recipes in `training/recipes.py`."""

    tiny = "tiny"
    mini = "mini"
    full = "full"
    card24 = "card24"
    one_film = "one-film"


class Ablation(StrEnum):
    """Names of the ablations in `training/recipes.py`."""

    random_frame = "random-frame"
    linear = "linear"
    addition = "addition"
    cross_attention = "cross-attention"
    no_warm_up = "no-warm-up"
    no_motion_scope = "no-motion-scope"
    no_adaptation = "no-adaptation"
    cosine_loss = "cosine-loss"
    no_history = "no-history"


class TrainPart(StrEnum):
    """Parts of training that `animegamer train` runs."""

    features = "features"
    shot = "shot"
    game = "game"
    adapt = "adapt"
    all = "all"
    gc = "gc"
    gfc = "gfc"


class TrainRequest(BaseModel):
    """Request of `animegamer train`: data, folder of the run, recipe and options."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    data: tuple[Annotated[str, AfterValidator(without_secrets)], ...]
    out: Path
    start: Path | None = None
    fork_from: Path | None = None
    recipe: RecipeName | None = None
    ablation: Ablation | None = None
    config: Path | None = None
    features: Path | None = None
    trackers: tuple[str, ...] = ("tensorboard",)
    accelerate: Path | None = None
