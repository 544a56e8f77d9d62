"""What a build is asked to do: the one parameter of the flows, light enough for the command line to import."""

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
