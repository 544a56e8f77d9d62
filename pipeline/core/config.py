"""Build settings: one section per stage, every number bounded, every key documented, unknown keys rejected.

`animegamer config` prints the complete default as TOML with these descriptions as comments; a `--config` file needs
only the keys it changes. A section is part of the fingerprint of its stage, so a changed key reruns that stage and
the stages that depend on it, nothing else.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from pipeline.core.embed_settings import EmbedSettings
from pipeline.core.endpoint_address import EndpointAddress, VariableName
from pipeline.core.errors import UserError
from pipeline.core.film_settings import OneFilmSettings, Range
from pipeline.core.records import Rate, faults_of
from pipeline.core.settings import Settings
from pipeline.core.toml import read_toml


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even: H.264 with yuv420p stores colour at half size")
    return value


def _ascending(edges: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if edges is not None and list(edges) != sorted(set(edges)):
        raise ValueError("must rise strictly: four edges make five levels")
    return edges


def _positive(rate: Fraction) -> Fraction:
    if not 1 <= rate <= 60:
        raise ValueError("must lie between 1 and 60 frames per second")
    return rate


Even = Annotated[int, Field(ge=64, le=2160), AfterValidator(_even)]
Share = Annotated[float, Field(ge=0, le=1)]
Rule = Literal["drop", "first", "keep"]


class FilmSettings(Settings):
    """Part of each film to use, and the treatment of its fields."""

    later_keys = frozenset({"fields"})

    end_seconds: float | None = Field(None, gt=0, description="end of the part to use (`--end`) [default: whole film]")
    fields: Literal["auto", "keep", "refuse"] = Field(
        "auto", description="telecine and interlace, found from the pictures: undo them, keep them, or refuse the film"
    )


class CropSettings(Settings):
    """Black borders: one crop per stretch of film, found on keyframes spread over it."""

    enabled: bool = Field(True, description="false keeps the whole picture")
    keyframes: int = Field(60, ge=4, le=60, description="keyframes to inspect, spread over the film")
    black_luma: int = Field(24, ge=0, le=64, description="a border pixel is darker than this (0..255)")
    dark_frame_luma: float = Field(20, ge=0, le=128, description="frames whose mean luma is below this do not vote")


class SceneSettings(Settings):
    """Scene detection: PySceneDetect for cuts, and a small network for all changes."""

    detect_width: int = Field(160, ge=64, le=640, description="width of the pictures given to the detectors, pixels")
    adaptive_threshold: float = Field(3.0, ge=0.5, le=20, description="AdaptiveDetector: score relative to neighbours")
    adaptive_window: int = Field(2, ge=1, le=10, description="AdaptiveDetector: neighbours on each side, in drawings")
    min_content: float = Field(15.0, ge=0, le=100, description="AdaptiveDetector: least absolute content change")
    changed_share: Share = Field(0.3, description="share of the picture that a cut changes; less is a moving character")
    moving_threshold: float = Field(
        1.5, ge=0.5, le=20, description="AdaptiveDetector: threshold if the colours change too (fast camera)"
    )
    colour_overlap: Share = Field(0.6, description="colour histograms that overlap less than this have changed")
    min_scene_seconds: float = Field(
        0.25, ge=0, le=5, description="a change undone sooner is a flash; cuts closer together count as one"
    )
    transition_seconds: float = Field(2.0, ge=0.5, le=5, description="longest dissolve, fade or wipe that is found")

    def ingredients(self) -> dict[str, Any]:
        """Return the settings, and the defaults of two that are gone: films cut before the network came stay as cut."""
        return super().ingredients() | {"dissolve_change": 12.0, "dissolve_misfit": 0.25}


class ClipSettings(Settings):
    """Clips: the fixed-length pieces that scenes are cut into."""

    later_keys = frozenset({"placing", "avoid_overlays"})

    frames: int = Field(16, ge=2, le=128, description="frames in a clip (CogVideoX also accepts 17)")
    fps: Annotated[Rate, AfterValidator(_positive)] = Field(Fraction(8), description="frames per second of a clip")
    seconds: float = Field(2.0, ge=0.25, le=30, description="distance between clip starts inside a scene")
    placing: Literal["grid", "overlap"] = Field(
        "grid", description="overlap: the rest of a scene gives a last clip, which reaches back into the one before"
    )
    width: Even = Field(720, description="pixels")
    height: Even = Field(480, description="pixels")
    fit: Literal["cover", "fit", "stretch"] = Field(
        "cover", description="cover crops to the centre, fit pads with black, stretch ignores the aspect ratio"
    )
    margin_frames: int = Field(
        2, ge=0, le=24, description="film frames left out at each end of a scene, unless no clip fits between them"
    )
    avoid_overlays: bool = Field(False, description="crop logos and subtitles away at less than a fifth of the picture")
    crf: int = Field(17, ge=0, le=40, description="H.264 quality of the clip files, lower is better and larger")

    @model_validator(mode="after")
    def _clips_do_not_overlap(self) -> Self:
        if (self.frames - 1) / self.fps > self.seconds:
            raise ValueError(f"{self.frames} frames at {self.fps} fps last longer than the grid of {self.seconds} s")
        if self.placing == "overlap" and self.stride not in (self.frames, self.frames - 1):
            raise ValueError(
                f'placing = "overlap" needs clips without gaps, so seconds = frames / fps; {self.frames} frames at '
                f"{self.fps} per second last {float(self.frames / self.fps):g} seconds, not {self.seconds:g}"
            )
        return self

    @property
    def stride(self) -> Fraction:
        """Distance between clip starts in clip frames."""
        return Fraction(str(self.seconds)) * self.fps


class DialogueSettings(Settings):
    """Dialogue: spoken lines from the subtitles in the film's container, or in files beside it."""

    language: str | None = Field(
        None,
        pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
        description="language of the track to use, as ja [default: as `[[films]]`, else as the sound, else any]",
    )


class SoundSettings(Settings):
    """Sound of the clips."""

    keep: bool = Field(False, description="write the sound of every clip, as `clips/<clip_id>.m4a`")
    language: str | None = Field(
        None,
        max_length=35,
        description="language of the track to use, as `ja` [default: as in `[[films]]`, else the default track]",
    )


class LooksSettings(Settings):
    """Looks: measurements of the pictures of a clip."""

    text: bool = Field(True, description="look for text with the RapidOCR detector (the slowest part of this stage)")
    text_frames: int = Field(2, ge=1, le=4, description="frames per clip to search for text")


class MotionSettings(Settings):
    """Motion scope: optical flow between consecutive clip frames."""

    model: str = Field("dis", description="dis (OpenCV, CPU), or any ptlflow model by name: memflow, raft, ...")
    checkpoint: str | None = Field(None, description="weights for a ptlflow model: a file, or a name known to ptlflow")
    background_px: float = Field(0.2, ge=0, le=5, description="magnitudes below this are background and excluded")
    scale: float | None = Field(
        None,
        ge=0.1,
        le=1,
        description="scale of clips for the flow; results stay in clip pixels [default: 0.5 for dis, 1 for a network]",
    )
    edges: Annotated[tuple[float, float, float, float] | None, AfterValidator(_ascending)] = Field(
        None,
        description="upper edges of levels 1 to 4 in px per step [default: from `animegamer calibrate`, "
        "else the midpoints of the published table]",
    )
    batch: int = Field(8, ge=1, le=256, description="clips per batch of a ptlflow model")


class CaptionSettings(Settings):
    """Captions: the characters on screen and what happens."""

    later_keys = frozenset({"guided", "most_requests", "dialogue"})

    captioner: Literal["rules", "server"] = Field(
        "rules", description="rules (offline, from measured facts) or server (an OpenAI-compatible endpoint)"
    )
    endpoint: EndpointAddress = Field(
        "http://127.0.0.1:23333/v1", description="base address of the server (lmdeploy's default)"
    )
    model: str = Field("OpenGVLab/InternVL2-26B", description="model name on the server")
    revision: str = Field("", description="weights revision, for the records; part of the fingerprint")
    api_key_env: VariableName = Field(
        "ANIMEGAMER_API_KEY", description="environment variable with the API key, in capitals"
    )
    concurrency: int = Field(16, ge=1, le=256, description="requests in flight, of each of the films worked on at once")
    batch: int = Field(1024, ge=1, le=1024, description="clips per task; at the end of each the server runs empty")
    timeout_seconds: float = Field(120, gt=0, le=3600, description="timeout of one request")
    attempts: int = Field(4, ge=1, le=20, description="attempts on transient failures, with increasing delays")
    repairs: int = Field(2, ge=0, le=10, description="repeated requests after a malformed reply, each naming its fault")
    max_tokens: int = Field(256, ge=16, le=4096, description="longest reply")
    temperature: float = Field(0.0, ge=0, le=2, description="0: the same answer each time")
    tiles: bool = Field(
        True,
        description="state the tiles of the grid and the cast sheet (lmdeploy's max_dynamic_patch) for models that cut "
        "fewer by default; false if the server rejects it",
    )
    guided: Literal["auto", "on", "off"] = Field(
        "auto",
        description="replies guided by a regular expression (lmdeploy's regex_schema); auto: if the server accepts it",
    )
    dialogue: bool = Field(False, description="show the server the lines of dialogue heard in the clip, as context")
    most_requests: int | None = Field(
        None,
        ge=1,
        description="requests, with repeats, after which a build stops (counted per film with workers, per task on "
        "Ray) [default: no limit]",
    )
    failed_limit: Share = Field(0.2, description="share of clips without a usable caption that fails the film")
    keep_old: bool = Field(
        False,
        description="keep and flag the good captions of the same model if a prompt or setting has changed",
    )


class SelectionSettings(Settings):
    """Selection of the clips to keep. Changing these repeats no measurement."""

    later_keys = frozenset(
        {
            *("near_duplicates", "max_two_groups", "prefer", "text", "logo"),
            *("skip", "openings", "endings", "recaps", "previews", "repeats"),
        }
    )

    skip: tuple[Range, ...] = Field(
        (), description='ranges to leave out of every film, as ["0:00-1:30", "21:30-"]; `[[films]]` has its own'
    )
    openings: Rule = Field(
        "drop",
        description="by chapter, or the same in several episodes; first: keep the first copy, or a chapter alone",
    )
    endings: Rule = Field("drop", description="the same")
    recaps: Rule = Field("first", description="the same; first keeps what is recapped")
    previews: Rule = Field("first", description="the same; first keeps what is previewed")
    repeats: Rule = Field("first", description="other stretches that are the same in several episodes")
    min_light: float = Field(16, ge=0, le=255, description="mean luma below this: dark")
    max_dark_share: Share = Field(0.97, description="share of near-black pixels above this: dark")
    min_contrast: float = Field(6, ge=0, le=128, description="contrast below this: blank")
    max_text_share: Share = Field(0.01, description="share of the picture under text above this: text")
    text: Literal["drop", "flag"] = Field("drop", description="clips with text or subtitles: drop, or keep and flag")
    logo: Literal["drop", "flag"] = Field("drop", description="clips with a logo of the film: drop, or keep and flag")
    credits_lines: int = Field(4, ge=1, le=100, description="this many lines of text on a frame: credits")
    max_two_groups: Share = Field(0.35, description="pictures that fall into two groups in time by more: two scenes")
    near_duplicates: bool = Field(True, description="search for clips that repeat another, and drop them")
    duplicate_distance: int = Field(
        24, ge=0, le=48, description="most bits of 256 in which the hashes of two frames of one picture differ"
    )
    duplicate_gap_seconds: float = Field(
        120,
        ge=0,
        le=36_000,
        description="clips of one film that start closer together are not near-duplicates, unless both are still",
    )
    prefer: Literal["first", "quality"] = Field(
        "first",
        description="of near-duplicates, keep the first added, or the better copy with the other's caption and "
        "reviews; the report names better copies",
    )
    max_still_share: Share | None = Field(None, description="still share above this: too still; unset keeps all")
    min_level: int | None = Field(None, ge=1, le=5, description="motion level below this: too still; unset keeps all")
    uncaptioned: Literal["drop", "keep"] = Field("drop", description="clips without a usable caption")


def _absolute(path: str | None) -> str | None:
    """Resolve a path against the working folder of the build: later commands have others."""
    if path is not None and ("://" in path or "\0" in path or not path):
        raise ValueError("must be the path of a file on this machine")
    return path and str(Path(path).absolute())


class ReviewSettings(Settings):
    """Reviews: decisions of people about clips, applied when publishing."""

    file: Annotated[str | None, AfterValidator(_absolute)] = Field(
        None, description="file of the decisions, perhaps in git [default: review.jsonl in the dataset]"
    )
    carry: Share | None = Field(
        None,
        description="least confidence at which clips that look like reviewed ones get their characters; needs "
        "`[embed] pictures` [default: never]",
    )


class ShardSettings(Settings):
    """WebDataset tars."""

    later_keys = frozenset({"split"})

    samples: int = Field(256, ge=1, le=100_000, description="samples in a shard, closed at the next scene end")
    val_share: Share = Field(0.2, description="share of each film in the split `val`")
    split: Literal["time", "film"] = Field("time", description="film: each whole film in one split, as every fifth")
    block_seconds: float = Field(60, gt=0, le=3600, description="length of the time blocks assigned to one split")


CARD_LETTERS = 100_000
"""Longest text of the data card: it is in every copy of the card, and in `dataset.json`."""


class CardSettings(Settings):
    """Facts that only you know about the data; copied into the data card."""

    title: str = Field("", max_length=CARD_LETTERS, description="name of the dataset")
    licence: str = Field("", max_length=CARD_LETTERS, description="licence of the films, per film if they differ")
    provenance: str = Field("", max_length=CARD_LETTERS, description="origin of the films, and your right to use them")
    contact: str = Field("", max_length=CARD_LETTERS, description="contact for questions")
    notes: str = Field("", max_length=CARD_LETTERS, description="anything else, as Markdown")


class RunSettings(Settings):
    """Distribution of the work; never part of a fingerprint, nor stored with the dataset."""

    runner: Literal["threads", "workers", "ray"] = Field(
        "threads",
        description="threads (in this process), workers (of a Prefect work pool, one flow run per film) or ray",
    )
    films_at_once: int = Field(1, ge=1, le=1024, description="films worked on at the same time")
    threads: int = Field(0, ge=0, le=256, description="threads per film; 0: all cores, on Ray one")
    ray_address: str = Field(
        "auto",
        pattern=r"^(auto|(ray://)?[^@?/\s]+:[0-9]+)$",
        description="auto: the cluster of this machine; or ray://HOST:10001",
    )
    ray_gpus: float = Field(1, ge=0, le=8, description="GPU share requested from Ray for optical flow by a network")
    failed_limit: Share = Field(0.1, description="share of a film's clips that may fail in a stage before it fails")


class Config(Settings):
    """Settings of a whole build."""

    film: FilmSettings = FilmSettings()
    crop: CropSettings = CropSettings()
    scenes: SceneSettings = SceneSettings()
    clips: ClipSettings = ClipSettings()
    dialogue: DialogueSettings = DialogueSettings()
    sound: SoundSettings = SoundSettings()
    embed: EmbedSettings = EmbedSettings()
    looks: LooksSettings = LooksSettings()
    motion: MotionSettings = MotionSettings()
    captions: CaptionSettings = CaptionSettings()
    selection: SelectionSettings = SelectionSettings()
    review: ReviewSettings = ReviewSettings()
    shards: ShardSettings = ShardSettings()
    card: CardSettings = CardSettings()
    run: RunSettings = RunSettings()
    films: tuple[OneFilmSettings, ...] = ()


def load_config(path: Path | None) -> Config:
    """The configuration in a TOML file, or the default.

    Raises:
        UserError: the file is missing, cannot be read as TOML, or holds an unknown key or an invalid value.
    """
    if path is None:
        return Config()
    try:
        raw = read_toml(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; `animegamer config > {path.name}` writes the default") from None
    return checked(raw, str(path))


def checked(values: dict[str, Any], origin: str) -> Config:
    """Validate plain values as a configuration; `origin` names their source in errors.

    Raises:
        UserError: an unknown key, or a value out of bounds.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{origin}: {faults_of(error)} (`animegamer config` lists every key)") from error


def recorded(values: dict[str, Any], root: Path) -> Config:
    """Return the settings that a dataset at `root` records of its last build, without keys that have left since.

    Raises:
        UserError: a value is out of bounds.
    """
    try:
        return Config.model_validate(values, extra="ignore")
    except ValidationError as error:
        raise UserError(f"{root / 'dataset.json'}: {faults_of(error)}; run `animegamer build` again") from error
