"""Model configuration: every size that differs between `tiny`, `mini` and `full`, and the conventions of the weights.

`full` is the published model: Mistral 7B, CogVideoX 2B, T5 XXL and CLIP ViT-B/16 from the model hub, 480x720, 226 shot
tokens. `tiny` has the same parts, small and random, in the same formats; it trains and plays on two CPU cores. `mini`
is the size that two cores can teach a small world: all its networks are trained whole, none is pretrained.

A checkpoint stores its `ModelConfig` as `config.json`, the only description of its networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, ValidationError, model_validator

from models.engine_options import STEP_COUNTS, TIMESTEPS, Sampler
from pipeline.core.errors import UserError, read_limited, shortened
from pipeline.core.settings import Settings

CONFIG = "config.json"
MOST_CONFIG_BYTES = 10_000_000
LEVELS = 5
TOKENIZER_FILES = ("tokenizer.json", "spiece.model", "vocab.json")
"""Files with the words of a tokenizer; a tokenizer's folder has one of these files."""
MOST_SHOT_TOKENS = 256
"""Number of frame tokens in the vocabulary, `<frame_00000>` to `<frame_00255>`."""

Variant = Literal["mlp", "linear", "addition", "cross_attention"]
Continues = Literal["no", "scene", "place"]
Component = Literal["language_model", "transformer", "autoencoder", "text_encoder", "image_encoder"]
Size = Literal["tiny", "mini", "full"]

PUBLISHED_VALUES: Mapping[str, tuple[float, ...]] = {
    "decoder script": (0.5, 2.5, 10.0, 15.0, 40.0),
    "app": (0.5, 1.0, 5.0, 20.0, 40.0),
}
"""Motion scope in pixels of levels 1 to 5, by the published script that has the table."""


WIDEST = 65_536
"""Maximum width of a state. A damaged file may have a larger one, which could exhaust the memory."""


class ShotEncoderConfig(Settings):
    """Shot encoder: first frame and motion text to shot tokens."""

    variant: Variant = Field("mlp", description="fusion of text and picture; all but `mlp` are ablations")
    text_tokens: int = Field(
        30, ge=1, le=4096, description="tokens of the motion text, padded or truncated to this number"
    )
    text_width: int = Field(4096, ge=1, le=WIDEST, description="width of the text encoder's states")
    image_pixels: int = Field(224, ge=16, le=4096, description="side of the image encoder's square input")
    image_patch: int = Field(16, ge=1, le=4096, description="side of a patch of that input, in pixels")
    image_width: int = Field(768, ge=1, le=WIDEST, description="width of the image encoder's patch states")
    width: int = Field(1920, ge=2, le=WIDEST, description="width of a shot token, equal to the shot decoder's width")

    @property
    def image_tokens(self) -> int:
        """Number of patches of the picture, without the class token."""
        return (self.image_pixels // self.image_patch) ** 2

    @property
    def shot_tokens(self) -> int:
        """Number of shot tokens of one animation shot; depends on the variant."""
        joined = self.variant in ("mlp", "linear")
        return self.text_tokens + self.image_tokens if joined else self.image_tokens


class ShotDecoderConfig(Settings):
    """Shot decoder: shot tokens and motion scope to frames."""

    later_keys = frozenset({"continues"})

    frames: int = Field(
        17, ge=9, le=1025, description="frames per shot, 8n + 1: the autoencoder packs the first one alone"
    )
    fps: int = Field(8, ge=1, le=240, description="frames per second")
    height: int = Field(480, ge=16, le=8192, description="height of a frame in pixels, a multiple of 16")
    width: int = Field(720, ge=16, le=8192, description="width of a frame in pixels, a multiple of 16")
    lora_rank: int = Field(
        64,
        ge=0,
        le=4096,
        description="rank of the adapters on every attention projection; 0 trains all weights instead",
    )
    lora_alpha: int = Field(64, ge=1, description="an adapter is scaled by alpha / rank; 1 in the released weights")
    norm_out_eps: float = Field(1e-5, gt=0, description="epsilon of the last norm; 1e-6 in the released weights")
    motion_scope: bool = Field(True, description="condition on the motion scope; off in an ablation")
    continues: Continues = Field(
        "no", description="condition on the end of the shot before: within a scene, or as long as the place stays"
    )

    @model_validator(mode="after")
    def _fits_the_autoencoder(self) -> Self:
        if self.frames % 8 != 1:
            raise ValueError(f"frames must be 8n + 1, such as 9 or 17, not {self.frames}")
        if self.height % 16 or self.width % 16:
            raise ValueError(f"height and width must be multiples of 16, not {self.height}x{self.width}")
        return self

    @property
    def latent_frames(self) -> int:
        """Latent frames of a shot: one for the first frame, then one for every four."""
        return (self.frames - 1) // 4 + 1


class GameModelConfig(Settings):
    """Game model: history and instruction to the next shot tokens and state."""

    lora_rank: int = Field(
        32,
        ge=0,
        le=4096,
        description="rank of the adapters on all seven projections of a layer; 0 trains all weights instead",
    )
    lora_alpha: int = Field(32, ge=1, description="an adapter is scaled by alpha / rank")
    lora_dropout: float = Field(0.05, ge=0, lt=1, description="dropout before an adapter, in training")
    window_turns: int = Field(5, ge=1, le=20, description="turns in its context, the one to predict included")


class Conventions(Settings):
    """Conventions that weights are trained with: ours by default, `RELEASED_CONVENTIONS` in the published code."""

    readout_shift: int = Field(0, ge=0, le=3, description="shot tokens are read this many positions after the queries")
    doubled_end_tag: bool = Field(False, description="`</ST>` is written twice in a history turn")
    guidance: Literal["constant", "published"] = Field(
        "constant", description="`published` varies the scale by a cosine of the timestep, mistaken for the step"
    )


class Distillation(Settings):
    """Origin of a shot decoder that learned from a slower teacher (`animegamer train distill`)."""

    guidance: float = Field(ge=1, description="guidance scale of the teacher, which the weights now contain")
    steps: int | None = Field(None, description="denoising steps that it is trained for; null: the teacher's")


class Sampling(Settings):
    """Sampling of a checkpoint's shots, which play and evaluation use unless told otherwise."""

    sampler: Sampler = Field("sde", description="see `models/diffusion.py:sample`")
    steps: int = Field(50, ge=1, description="denoising steps, a divisor of 1000")
    guidance: float = Field(6.0, ge=1, description="guidance scale: weight of the shot tokens; 1 is none")
    guided: tuple[int, int] = Field((0, 999), description="first and last timestep with guidance")

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if self.steps not in STEP_COUNTS:
            raise ValueError(f"steps must divide {TIMESTEPS}, unlike {self.steps}")
        first, last = self.guided
        if not 0 <= first <= last < TIMESTEPS:
            raise ValueError(f"guided must be two rising timesteps from 0 to {TIMESTEPS - 1}, not {first} and {last}")
        return self

    def replaced(self, **given: Any) -> Self:
        """Return a copy with those values that are not None. UserError if a value is out of range."""
        try:
            return self.model_validate(self.model_dump() | {key: one for key, one in given.items() if one is not None})
        except ValidationError as error:
            raise UserError(f"sampling: {_faults_of(error)}") from error


MINI_SAMPLING = Sampling(steps=10, guidance=2.0)
"""Sampling of `mini`: a turn is drawn in a second or two of one core, and guidance 6 would burn its pictures."""
RELEASED_CONVENTIONS = Conventions(readout_shift=3, doubled_end_tag=True, guidance="published")


NOT_PLAYED = frozenset({"sampling", "levels", "together", "other_words", "about"})
"""Later keys that are no part of a checkpoint's identity: a game records its sampling, and the others are for pages."""


class LevelScale(Settings):
    """Measurement of the motion levels of the training data, for an evaluation without the dataset."""

    edges: tuple[float, float, float, float] = Field(description="upper edges of levels 1 to 4 in px per step")
    dis_scale: float | None = Field(None, description="scale of clips for the optical flow by DIS; null: its default")
    width: int = Field(gt=0, description="width of the dataset's clips, in whose pixels the edges are")
    height: int = Field(gt=0, description="height of the dataset's clips")


class Base(Settings):
    """Location of a frozen base: hub id or folder, revision, subfolder."""

    id: str = Field(description="hub id, a folder, or `bases/NAME` inside the checkpoint")
    revision: str | None = Field(None, description="commit or tag on the hub; by default the latest commit")
    subfolder: str = Field("", description="folder inside the repository")
    tokenizer_subfolder: str = Field("", description="folder of the text encoder's tokenizer, if it differs")

    @classmethod
    def of_folder(cls, component: str, folder: Path) -> Self:
        """Return a base on disk; a text encoder's tokenizer may be in the folder `tokenizer` next to it."""
        folder = folder.absolute()
        lacks_tokenizer = component == "text_encoder" and not _has_tokenizer(folder)
        if lacks_tokenizer and _has_tokenizer(folder.parent / "tokenizer"):
            return cls(id=str(folder.parent), subfolder=folder.name, tokenizer_subfolder="tokenizer")
        return cls(id=str(folder))


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def inside_id(component: Component) -> str:
    """Id of a base inside the checkpoint; relative, so that the checkpoint can be renamed or moved."""
    return f"bases/{component}"


class ModelConfig(Settings):
    """Everything needed to build the networks of one checkpoint."""

    later_keys = frozenset(
        {
            *("still_last_frame", "encoded_frame", "sampling", "distilled", "levels"),
            *("motions", "places", "together", "other_words", "about"),
        }
    )

    size: Size
    shot_encoder: ShotEncoderConfig = ShotEncoderConfig()
    shot_decoder: ShotDecoderConfig = ShotDecoderConfig()
    game_model: GameModelConfig = GameModelConfig()
    conventions: Conventions = Conventions()
    sampling: Sampling = Sampling()
    distilled: Distillation | None = Field(None, description="teacher of the shot decoder; null: it is not distilled")
    level_values: tuple[float, ...] = Field(
        PUBLISHED_VALUES["decoder script"], description="motion scope in pixels of levels 1 to 5"
    )
    levels: LevelScale | None = Field(None, description="how the motion levels were measured; null: see the dataset")
    characters: tuple[str, ...] = Field((), description="names in the training data, offered by the game page")
    motions: tuple[str, ...] = Field((), description="motions in the training data, offered by the game page")
    places: tuple[str, ...] = Field((), description="backgrounds in the training data, offered by the game page")
    together: dict[str, tuple[str, ...]] = Field(
        {}, description="motions and places met with a name, and places with a motion; the game page marks other pairs"
    )
    other_words: dict[str, str] = Field(
        {}, description="what players may say for a name, motion, place, time or manner; the game page understands it"
    )
    about: str = Field("", description="text of the game page on what a game can and cannot show")
    still_last_frame: bool = Field(
        False, description="trained on clips one frame short, their last frame repeated: play leaves the last frame out"
    )
    encoded_frame: Literal["first", "random"] = Field(
        "first", description="frame of a clip that the shot encoder has learned from; `random` is an ablation"
    )
    bases: dict[Component, Base]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the configuration of a checkpoint.

        Raises:
            UserError: the folder is not a checkpoint, or the configuration is not valid.
        """
        path = folder / CONFIG
        try:
            return cls.model_validate_json(read_settings(path))
        except OSError as error:
            raise UserError(
                f"{folder} is not a checkpoint: {CONFIG} cannot be read ({error.strerror}). "
                "`animegamer new-checkpoint` makes one, `animegamer import-weights` converts the released one"
            ) from error
        except ValidationError as error:
            raise UserError(f"{path} is not valid: {_faults_of(error)}") from error

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if self.shot_encoder.shot_tokens > MOST_SHOT_TOKENS:
            raise ValueError(f"{self.shot_encoder.shot_tokens} shot tokens, but the vocabulary has {MOST_SHOT_TOKENS}")
        missing = set(get_args(Component)) - set(self.bases)
        if missing:
            raise ValueError(f"bases lacks {', '.join(sorted(missing))}")
        for component in self.whole:
            if self.bases[component].id != inside_id(component):
                raise ValueError(f"without adapters {component} is trained itself: its base is {inside_id(component)}")
        rising = list(self.level_values) == sorted(set(self.level_values))
        if len(self.level_values) != LEVELS or not rising or self.level_values[0] < 0:
            raise ValueError(f"level_values must be {LEVELS} rising numbers from 0, not {self.level_values}")
        return self

    @property
    def whole(self) -> frozenset[Component]:
        """Bases that have no adapters: they are trained themselves, and saved in `bases`."""
        ranks: dict[Component, int] = {
            "language_model": self.game_model.lora_rank,
            "transformer": self.shot_decoder.lora_rank,
        }
        return frozenset(component for component, rank in ranks.items() if not rank)

    @property
    def shown_frames(self) -> int:
        """Number of frames of a turn in play."""
        return self.shot_decoder.frames - self.still_last_frame

    def scope_of(self, level: int) -> float:
        """Motion scope in pixels of a motion level, 1 to 5."""
        if not 1 <= level <= LEVELS:
            raise ValueError(f"a motion level is 1 to {LEVELS}, not {level}")
        return self.level_values[level - 1]

    def as_released(self, values: tuple[float, ...]) -> ModelConfig:
        """The profile of the released weights: their conventions, no history, the norm's epsilon, a level table.

        We do not reproduce two details of the published code. It decodes the state in a second pass that is causal over
        the queries, unlike its training. Its sampler rounds the noise schedule slightly differently (0.3%).
        """
        return self.replaced(
            conventions=RELEASED_CONVENTIONS,
            level_values=values,
            game_model={**self.game_model.model_dump(), "window_turns": 1},
            shot_decoder={**self.shot_decoder.model_dump(), "norm_out_eps": 1e-6},
        )

    def text(self) -> str:
        """Content of `config.json`: the sampling, and of the other later keys those that differ from their defaults."""
        left_out = self.unset_later_keys()
        left_out.pop("sampling", None)
        return self.model_dump_json(indent=2, exclude=left_out) + "\n"

    def played(self) -> str:
        """Parts that a game depends on, in the form of `config.json`."""
        left_out = self.unset_later_keys() | dict.fromkeys(NOT_PLAYED, True)
        return self.model_dump_json(indent=2, exclude=left_out) + "\n"

    def replaced(self, **changes: Any) -> ModelConfig:
        """Copy of the configuration with some fields changed, validated like a new one."""
        return ModelConfig.model_validate({**self.model_dump(), **changes})


def _faults_of(error: ValidationError) -> str:
    return shortened([f"{'.'.join(map(str, fault['loc']))[:100]}: {fault['msg']}" for fault in error.errors()])


def read_settings(path: Path) -> bytes:
    """Read a configuration file of a checkpoint or a baseline.

    Raises:
        OSError: it cannot be read.
        UserError: it is a device or a pipe, or larger than `MOST_CONFIG_BYTES`.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file; copy the folder again")
    return read_limited(path, MOST_CONFIG_BYTES)


def full_config() -> ModelConfig:
    """Configuration of the published model, with its frozen bases by hub id."""
    video = "zai-org/CogVideoX-2b"
    return ModelConfig(
        size="full",
        bases={
            "language_model": Base(id="mistralai/Mistral-7B-Instruct-v0.1"),
            "transformer": Base(id=video, subfolder="transformer"),
            "autoencoder": Base(id=video, subfolder="vae"),
            # T5 1.1 XXL's encoder: its own repository holds it as a pickle, with an unused decoder
            "text_encoder": Base(id=video, subfolder="text_encoder", tokenizer_subfolder="tokenizer"),
            "image_encoder": Base(id="laion/CLIP-ViT-B-16-laion2B-s34B-b88K"),
        },
    )


def tiny_config() -> ModelConfig:
    """Configuration of the small model: 64x96 pixels, 80 shot tokens of width 128, bases inside the checkpoint."""
    return ModelConfig(
        size="tiny",
        shot_encoder=ShotEncoderConfig(
            text_tokens=16, text_width=64, image_pixels=64, image_patch=8, image_width=64, width=128
        ),
        shot_decoder=ShotDecoderConfig(height=64, width=96, lora_rank=8, lora_alpha=8),
        game_model=GameModelConfig(lora_rank=8, lora_alpha=8, lora_dropout=0.0),
        bases={name: Base(id=inside_id(name)) for name in get_args(Component)},
    )


def mini_config() -> ModelConfig:
    """Configuration for a small world: 128x192 pixels, 80 shot tokens of width 192, no adapters, for two cores."""
    return ModelConfig(
        size="mini",
        shot_encoder=ShotEncoderConfig(
            text_tokens=16, text_width=96, image_pixels=64, image_patch=8, image_width=96, width=192
        ),
        shot_decoder=ShotDecoderConfig(height=128, width=192, lora_rank=0, continues="place"),
        game_model=GameModelConfig(lora_rank=0),
        sampling=MINI_SAMPLING,
        bases={name: Base(id=inside_id(name)) for name in get_args(Component)},
    )


CONFIGS: Mapping[Size, Callable[[], ModelConfig]] = {"tiny": tiny_config, "mini": mini_config, "full": full_config}
