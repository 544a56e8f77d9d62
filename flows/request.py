"""What a build or a training run is asked to do: the parameters of the flows, light enough for the command line."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.config import Config


class Until(StrEnum):
    """The last stage of a build."""

    probe = "probe"
    crop = "crop"
    cut = "cut"
    looks = "looks"
    motion = "motion"
    captions = "captions"
    publish = "publish"


class BuildRequest(BaseModel):
    """What `animegamer build` was asked to do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    films: tuple[Path, ...]
    out: Path
    cast: Path | None = None
    config: Config = Config()
    until: Until = Until.publish


class RecipeName(StrEnum):
    """The recipes of `training/recipes.py`."""

    tiny = "tiny"
    full = "full"
    card24 = "card24"


class Ablation(StrEnum):
    """The ablations of `training/recipes.py`."""

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
    """What `animegamer train` can be asked for."""

    features = "features"
    shot = "shot"
    game = "game"
    adapt = "adapt"
    all = "all"
    gc = "gc"
    gfc = "gfc"


class TrainRequest(BaseModel):
    """What `animegamer train` was asked to do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    out: Path
    start: Path | None = None
    recipe: RecipeName = RecipeName.tiny
    ablation: Ablation | None = None
    config: Path | None = None
    trackers: tuple[str, ...] = ("tensorboard",)
    accelerate: Path | None = None
