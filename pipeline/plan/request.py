"""Build request: the parameters of the build flow, fast to import for the command line."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from pipeline.core.config import Config
from pipeline.core.plain_text import is_text, printable
from pipeline.remote.objects import RemoteError, checked_remote, is_address


class Until(StrEnum):
    """The last stage of a build."""

    probe = "probe"
    crop = "crop"
    cut = "cut"
    dialogue = "dialogue"
    looks = "looks"
    motion = "motion"
    captions = "captions"
    publish = "publish"


def _as_text(place: object) -> object:
    return os.fspath(place) if isinstance(place, os.PathLike) else place


def without_secrets(place: str) -> str:
    """Reject addresses that carry a secret: requests are shown, and stored in a scheduler's database."""
    if "://" not in place or place.startswith(("/", ".")):
        return place
    if not is_address(place):  # it may be one of fsspec's chained URLs, with a key in it
        raise ValueError("is not an address such as s3://bucket/folder; write a file of such a name as ./NAME")
    try:
        return checked_remote(place)
    except RemoteError as error:
        raise ValueError(str(error)) from None


_PLACE_SCHEMA = {
    "type": "string",
    "pattern": r"^(/|(?![Hh][Tt][Tt][Pp][Ss]?://[\s\S]*@)[A-Za-z][A-Za-z0-9+.-]+://(?![\s\S]*:[\s\S]*@)[^?\x00-\x1f\x7f]+$)",
}
PathOrAddress = Annotated[
    str, BeforeValidator(_as_text), AfterValidator(without_secrets), WithJsonSchema(_PLACE_SCHEMA)
]
"""A path, or an address such as `s3://bucket/film.mkv`.

A Prefect server validates parameters by the schema before it stores them. The schema requires absolute paths, because a
worker's working folder is not the user's, and rejects the same secrets as `checked_remote`.
"""


class BuildRequest(BaseModel):
    """Parameters of `animegamer build`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    films: tuple[PathOrAddress, ...] = Field(
        description="video files, folders of them, patterns such as `/films/*.mkv`, or addresses of files"
    )
    out: PathOrAddress = Field(description="dataset folder or address: created, or brought up to date")
    cast: PathOrAddress | None = Field(None, description="folder with one folder of reference pictures per character")
    config: Config = Field(Config(), description="as `animegamer config` prints it")
    until: Until = Field(Until.publish, description="last stage to run")
    ask_again: bool = Field(
        False,
        description="caption again: clips without a usable caption, and clips whose question has changed",
    )

    @model_validator(mode="after")
    def _check_paths(self) -> Self:
        """Reject paths that `dataset.json` cannot hold; each film is rejected alone, when it is identified."""
        for name, path in (("out", self.out), ("cast", self.cast), ("[review] file", self.config.review.file)):
            if path and not is_text(whole := absolute(path)):
                raise ValueError(f"{name}: {printable(whole)} is not valid UTF-8, as a dataset needs; rename it")
        return self

    def with_absolute_paths(self) -> BuildRequest:
        """The same request for processes with other working directories."""
        changed: dict[str, object] = {
            "films": tuple(map(absolute, self.films)),
            "out": absolute(self.out),
            "cast": self.cast and absolute(self.cast),
        }
        return self.with_absolute_checkpoint().model_copy(update=changed)

    def with_absolute_checkpoint(self) -> BuildRequest:
        """The same request with a configuration that names a file of weights from any working directory."""
        motion = self.config.motion
        if not (motion.checkpoint and Path(motion.checkpoint).is_file()):  # it may be a name that ptlflow knows
            return self
        motion = motion.model_copy(update={"checkpoint": absolute(motion.checkpoint)})
        return self.model_copy(update={"config": self.config.model_copy(update={"motion": motion})})


def absolute(path: str) -> str:
    """The absolute form of a path; an address is returned unchanged."""
    return path if is_address(path) else str(Path(path).absolute())
