"""Configuration of a baseline: its pipelines and their sampler settings, stored as `baseline.json`.

| kind | pictures | shots | trained |
|---|---|---|---|
| `gc` | none | CogVideoX 2B from the text | adapters and adaLN of CogVideoX, as in the shot decoder |
| `gfc` | FLUX, the first frame of each shot | CogVideoX 5B image-to-video | adapters of FLUX |
| `gsc` | SDXL with consistent self-attention, a whole story at once | CogVideoX 5B image-to-video | nothing |

`full` uses the published pipelines from the model hub, and `tiny` small random pipelines of the same architectures.
`mini` exists only for GC. It has autoencoder and text encoder of a checkpoint of that size, and a small transformer
that is trained whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from models.config import LEVELS, MINI_SAMPLING, PUBLISHED_VALUES, Base, Size, read_settings
from pipeline.core.errors import UserError
from pipeline.core.records import faults_of
from pipeline.core.settings import Settings

CONFIG = "baseline.json"
NOT_AT_MINI = "the size mini has only the baseline GC, made from a checkpoint: name one of that size with --from"
"""Error message for another baseline at `mini`, or for one without a start."""
BaselineKind = Literal["gc", "gfc", "gsc"]
PipelinePart = Literal["video", "picture"]
"""Pipeline of a baseline: `video` generates the shots, `picture` their first frames."""


class VideoSettings(Settings):
    """Settings of the shots."""

    later_keys = frozenset({"adaln", "still_last_frame", "whole"})

    base: Base = Field(description="a CogVideoX pipeline; image-to-video if there are pictures")
    frames: int = Field(17, ge=9, description="frames of a shot, 8n + 1")
    height: int = Field(480, ge=16, description="pixels, a multiple of 16")
    width: int = Field(720, ge=16, description="pixels, a multiple of 16")
    steps: int = Field(50, ge=1, description="denoising steps")
    guidance: float = Field(6.0, ge=1, description="guidance scale; 1 is none")
    lora_rank: int = Field(0, ge=0, description="rank of the adapters, applied at full weight; 0 for none")
    adaln: bool = Field(False, description="with adapters: the adaLN of the blocks is trained in full, as in the model")
    whole: bool = Field(False, description="without adapters: the transformer is trained whole")
    still_last_frame: bool = Field(
        False, description="trained on clips one frame short, their last frame repeated: play leaves the last frame out"
    )

    @property
    def shown_frames(self) -> int:
        """Number of frames of a turn in play."""
        return self.frames - self.still_last_frame

    @model_validator(mode="after")
    def _fits_the_autoencoder(self) -> Self:
        if self.frames % 8 != 1:
            raise ValueError(f"frames must be 8n + 1, such as 9 or 17, not {self.frames}")
        _check_size(self.height, self.width)
        if self.whole and self.lora_rank:
            raise ValueError("a transformer that is trained whole has no adapters: lora_rank must be 0")
        return self


class PictureSettings(Settings):
    """Settings of the first frames; they are scaled to the shots, so use the same aspect ratio."""

    base: Base = Field(description="a FLUX pipeline for `gfc`, an SDXL one for `gsc`")
    height: int = Field(480, ge=16, description="pixels, a multiple of 16")
    width: int = Field(720, ge=16, description="pixels, a multiple of 16")
    steps: int = Field(50, ge=1, description="denoising steps")
    guidance: float = Field(3.5, ge=1, description="guidance scale; for FLUX an input of the network")
    text_tokens: int = Field(128, ge=1, le=512, description="length of FLUX's T5 prompts, padded or truncated")
    lora_rank: int = Field(0, ge=0, description="rank of the adapters, applied at full weight; 0 for none")

    @model_validator(mode="after")
    def _fits_the_autoencoder(self) -> Self:
        _check_size(self.height, self.width)
        return self


class StorySettings(Settings):
    """Settings of consistent self-attention; defaults as published, except for the windows, which are ours."""

    sampled: float = Field(0.5, ge=0, le=1, description="share of another picture's tokens that a picture attends to")
    begin: float = Field(0.1, ge=0, le=1, description="share of the steps before pictures attend to each other")
    together: int = Field(10, ge=1, description="pictures generated at once; a longer story is split into windows")
    anchors: int = Field(2, ge=0, description="first pictures of a longer story, repeated in every window")

    @model_validator(mode="after")
    def _check_anchors(self) -> Self:
        if self.anchors >= self.together:
            raise ValueError(f"anchors must be fewer than together, {self.together}, not {self.anchors}")
        return self


class BaselineConfig(Settings):
    """Configuration for playing a baseline, without its adapters."""

    kind: BaselineKind
    size: Size
    video: VideoSettings
    picture: PictureSettings | None = None
    story: StorySettings | None = None
    level_values: tuple[float, ...] = Field(
        PUBLISHED_VALUES["decoder script"],
        min_length=LEVELS,
        max_length=LEVELS,
        description="motion scope in pixels of levels 1 to 5",
    )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the configuration of a baseline.

        Raises:
            UserError: the folder holds no baseline, or an invalid configuration.
        """
        path = folder / CONFIG
        try:
            return cls.model_validate_json(read_settings(path))
        except OSError as error:
            raise UserError(f"{folder} is not a baseline: {CONFIG} cannot be read ({error.strerror})") from error
        except ValidationError as error:
            raise UserError(f"{path} is not valid: {faults_of(error)}") from error

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if (self.picture is None) != (self.kind == "gc"):
            raise ValueError(f"{self.kind} {'needs' if self.picture is None else 'has no'} `picture`")
        if (self.story is not None) != (self.kind == "gsc"):
            raise ValueError(f"{self.kind} {'needs' if self.story is None else 'has no'} `story`")
        return self

    @property
    def trained_part(self) -> PipelinePart | None:
        """Pipeline whose transformer is trained, if any."""
        if self.video.lora_rank or self.video.whole:
            return "video"
        return "picture" if self.picture and self.picture.lora_rank else None

    def base(self, part: PipelinePart) -> Base:
        """Return the location of a pipeline. ValueError if the baseline does not have it."""
        settings = self.video if part == "video" else self.picture
        if settings is None:
            raise ValueError(f"{self.kind} draws no pictures")
        return settings.base


def full(kind: BaselineKind) -> BaselineConfig:
    """Return a published baseline. `gfc` has the paper's rank, and `gc` the shot decoder's."""
    moving = VideoSettings(base=Base(id="zai-org/CogVideoX-5b-I2V"))
    if kind == "gc":
        video = VideoSettings(base=Base(id="zai-org/CogVideoX-2b"), lora_rank=64, adaln=True)
        return BaselineConfig(kind=kind, size="full", video=video)
    if kind == "gfc":
        flux = PictureSettings(base=Base(id="black-forest-labs/FLUX.1-dev"), lora_rank=32)
        return BaselineConfig(kind=kind, size="full", video=moving, picture=flux)
    # SDXL draws well at a million pixels, and poorly at the third of a million that a shot has
    base = Base(id="stabilityai/stable-diffusion-xl-base-1.0")
    sdxl = PictureSettings(base=base, height=832, width=1248, guidance=5.0)
    return BaselineConfig(kind=kind, size="full", video=moving, picture=sdxl, story=StorySettings())


def tiny(kind: BaselineKind) -> BaselineConfig:
    """Return a tiny baseline of the same parts: 64x96 pixels, random pipelines in the baseline's folder."""
    rank = {"gc": (8, 0), "gfc": (0, 8), "gsc": (0, 0)}[kind]
    size = {"height": 64, "width": 96}
    video = VideoSettings(base=Base(id=inside_id("video")), steps=4, lora_rank=rank[0], **size)
    if kind == "gc":
        return BaselineConfig(kind=kind, size="tiny", video=video.model_copy(update={"adaln": True}))
    base = Base(id=inside_id("picture"))
    picture = PictureSettings(base=base, steps=4, text_tokens=16, lora_rank=rank[1], **size)
    story = StorySettings() if kind == "gsc" else None
    return BaselineConfig(kind=kind, size="tiny", video=video, picture=picture, story=story)


def mini() -> BaselineConfig:
    """Return GC at the size of `mini`."""
    base, size = Base(id=inside_id("video")), {"height": 128, "width": 192}
    video = VideoSettings(base=base, steps=MINI_SAMPLING.steps, guidance=MINI_SAMPLING.guidance, whole=True, **size)
    return BaselineConfig(kind="gc", size="mini", video=video)


def inside_id(part: PipelinePart) -> str:
    """Return the path of a pipeline relative to the baseline's folder."""
    return f"bases/{part}"


def _check_size(height: int, width: int) -> None:
    if height % 16 or width % 16:
        raise ValueError(f"height and width must be multiples of 16, not {height}x{width}")
