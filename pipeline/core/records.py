"""Records passed between stages (film, crop, scene, clip, caption, verdict, ...) and their Arrow schemas.

Every record is frozen, rejects unknown fields and names its units. Times are seconds of presentation time
counted from the film's first frame; sizes are pixels; motion is pixels per step between two clip frames.
`null` always means "not measured", never "no".
"""

from __future__ import annotations

import re
import types
import unicodedata
from fractions import Fraction
from math import inf
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from pipeline.core.errors import shortened

SCHEMA_VERSION: Final = 2
SchemaVersion = Literal[2]
"""Schema of the dataset's files but its shards; files of another schema are rejected by name."""


def _as_fraction(value: Any) -> Any:
    try:
        # via str, a float becomes the fraction as written: 23.976, not 210895126300459/8796093022208
        return Fraction(str(value)) if isinstance(value, str | int | float) else value
    except ZeroDivisionError:
        raise ValueError("a rate cannot have 0 as denominator") from None


Rate = Annotated[Fraction, BeforeValidator(_as_fraction), PlainSerializer(str, return_type=str)]
"""Frames per second as an exact fraction; on disk the text `24000/1001`."""


class RecordError(Exception):
    """A record (film, clip) that cannot be used: its id, and a reason that the user can act on.

    The single error for bad input. It is caught in one place (`stage.attempt_each`, or the flow for a whole film),
    counted and reported; any other exception is a bug and propagates.
    """

    def __init__(self, record_id: str, reason: str) -> None:
        super().__init__(record_id, reason)
        self.record_id = record_id
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.record_id}: {self.reason}"


class Record(BaseModel):
    """Base of all records that are written to disk or passed through Prefect."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def faults_of(error: ValidationError) -> str:
    """The first faults of a validation on one line: `clips.frames: Input should be greater than 1; ... and 9 more`."""
    faults = error.errors(include_url=False, include_input=False)
    return shortened([f"{'.'.join(map(str, fault['loc']))[:100]}: {fault['msg']}".lstrip(": ") for fault in faults])


Transfer = Literal["bt709", "untagged", "bt2020", "pq", "hlg"]
"""Colour coding of a film: SDR in BT.709 or BT.601, untagged SDR, and BT.2020 in SDR or HDR (PQ, HLG)."""
FieldKind = Literal["progressive", "telecine", "interlaced"]
FieldsDone = Literal["progressive", "telecine undone", "interlace undone"]
"""Kind of fields found in a film, and their treatment; progressive frames are used unchanged."""


class AudioTrack(Record):
    """An audio stream of a film."""

    codec: str
    language: str | None = Field(description="ISO 639 code as in the file")
    sample_rate: int
    channels: int


class TextTrack(Record):
    """A subtitle stream of a film."""

    codec: str
    language: str | None = Field(description="ISO 639 code as in the file")
    title: str | None


class SubtitleFile(Record):
    """A subtitle file beside a film."""

    ending: str = Field(description="end of its name after the film's, as `.ja.ass`")
    source: str = Field(description="last known path or address")
    sha256: str


class Chapter(Record):
    """A chapter of a film."""

    start_seconds: float
    end_seconds: float
    title: str | None


class Sound(Record):
    """The sound track of a clip."""

    model_config = ConfigDict(strict=True)

    language: str | None = Field(description="ISO 639 code as in the film")
    sample_rate: int
    channels: int


class Repeat(Record):
    """A stretch of an episode that other episodes of its series have too."""

    start_seconds: float
    end_seconds: float
    kind: Literal["opening", "ending", "recap", "preview", "repeated"]
    is_first: bool = Field(description="the copy that `first` keeps")


class Film(Record):
    """A source video, as probed, and what stages found out about the whole of it (`film.json`)."""

    film_id: str = Field(description="slug of the first file name seen + 8 hex of the content hash")
    name: str = Field(description="file name as given, for people")
    source: str = Field(description="last known path or address of the file")
    sha256: str = Field(description="hash of the whole content")
    bytes: int
    container: str
    codec: str
    pixel_format: str
    bit_depth: int
    width: int = Field(description="coded pixels")
    height: int
    sample_aspect: Rate = Field(description="width of one stored pixel over its height")
    rotation_degrees: Literal[0, 90, 180, 270] = Field(description="clockwise rotation that makes the picture upright")
    display_width: int = Field(description="square pixels, after sample aspect and rotation")
    display_height: int
    fps: Rate = Field(description="frames over presentation time, or the standard rate that is close")
    variable_rate: bool
    interlaced: bool
    frames: int = Field(description="video packets in the file")
    duration_seconds: float = Field(description="last presentation time plus its frame's length, less the first")
    missing_seconds: float = Field(description="length in the header beyond that: the file is truncated")
    transfer: Transfer = Field(description="colour coding by its tags")
    fields: tuple[FieldsDone, ...] | None = Field(
        default=None, description="kinds found in the pictures by the stage `cut`, in order; null: nobody looked"
    )
    audio_tracks: tuple[AudioTrack, ...] | None = None
    text_tracks: tuple[TextTrack, ...] | None = None
    subtitle_files: tuple[SubtitleFile, ...] = Field(default=(), description="beside the film in the last build")
    chapters: tuple[Chapter, ...] | None = None
    series: str | None = Field(default=None, description="read from its name, or as `[[films]]` says; null: none")
    season: int | None = None
    episode: int | None = None
    language: str | None = Field(default=None, description="of its speech, by `[[films]]` or its first sound track")
    skip: tuple[str, ...] | None = Field(default=None, description="its ranges in `[[films]]`")
    repeats: tuple[Repeat, ...] = Field(default=(), description="found among the episodes of its series")
    compared: str | None = Field(default=None, description="fingerprint of the episodes that it was compared with")
    warnings: tuple[str, ...] = ()

    @property
    def episode_name(self) -> str:
        """Series, season and episode, as `Kiki, season 1, episode 7`; empty for a film of its own."""
        season = None if self.season is None else f"season {self.season}"
        episode = None if self.episode is None else f"episode {self.episode}"
        return ", ".join(filter(None, (self.series, season, episode)))

    @property
    def episode_place(self) -> tuple[float, float]:
        """Place in its series: episodes without a season come first, and without a number last."""
        return self.season or 0, inf if self.episode is None else self.episode

    @property
    def upright_size(self) -> tuple[int, int]:
        """Width and height in coded pixels after rotation."""
        return (self.height, self.width) if self.rotation_degrees in (90, 270) else (self.width, self.height)

    def used_seconds(self, end_seconds: float | None) -> float:
        """Length of the part before `end_seconds`; None: of the whole film."""
        return self.duration_seconds if end_seconds is None else min(end_seconds, self.duration_seconds)


class Crop(Record):
    """The picture inside the black borders, in display-oriented coded pixels, up to the start of the next crop."""

    film_id: str
    left: int
    top: int
    width: int
    height: int
    frames_used: int = Field(description="keyframes bright enough to use")
    warnings: tuple[str, ...] = ()
    start_seconds: float = 0.0
    notes: tuple[str, ...] = ()


class Damage(Record):
    """A span of film that could not be decoded; it counts as failed and no clip or scene overlaps it."""

    film_id: str
    start_seconds: float
    end_seconds: float
    reason: str


class FieldStretch(Record):
    """A stretch of film by the kind of its fields; the stretches of a film tile it without gaps.

    A film without the table is progressive throughout, or was cut by a version, or with a setting, that does not look.
    """

    film_id: str
    start_seconds: float
    end_seconds: float
    kind: FieldKind = Field(description="telecine was matched back to film frames, interlaced video deinterlaced")


class Scene(Record):
    """The frames between two cuts; the scenes and the damage of a film tile it without gaps."""

    film_id: str
    scene: int
    start_seconds: float
    end_seconds: float
    start_frame: int = Field(description="ordinal of the first frame in presentation order")
    end_frame: int = Field(description="ordinal after the last frame")
    opened_by: Literal["start", "cut", "dissolve", "fade", "wipe", "damage", "borders"]


class HashedPicture(Record):
    """One of eight pictures a second of a film. A film that was cut by an earlier version has no table of them."""

    seconds: float
    hash: str = Field(description="perceptual hash inside the borders, 64 hex digits; empty if too flat")


class Clip(Record):
    """A 2-second piece of one scene, written as `clips/<clip_id>.mp4`."""

    clip_id: str
    film_id: str
    scene: int
    index: int = Field(description="counts every clip of the film, dropped ones too")
    start_seconds: float
    end_seconds: float
    fps: Rate
    frames: int
    width: int
    height: int
    source_frames: tuple[int, ...] = Field(description="ordinal in the film of each clip frame")
    bytes: int
    sha256: str
    overlap_seconds: float = Field(default=0.0, description="shared with the clip before")
    sound: Sound | None = Field(default=None, description="always null, for the tables on disk; see the table `sound`")


KEPT = "kept: "
"""Start of the flag of a caption that was kept although ingredients changed; the names of the ingredients follow."""
COPIED = "copied: "
"""Start of the flag of a caption that a better copy of a clip took over; the id of the clip follows."""


class Caption(Record):
    """The structured answer about a clip. A tag that was not measured is null, and training masks it."""

    clip_id: str
    source: str = Field(description="`rules`, or the model that answered")
    S: str | None = None
    MD: str | None = None
    EV: str | None = None
    MA: str | None = None
    SC: Literal[0, 1] | None = None
    ET: Literal[0, 1] | None = None
    ST: Literal[-1, 1] | None = None
    characters: tuple[str, ...] | None = None
    reviewed: bool = False
    fault: str | None = Field(default=None, description="reason the reply is quarantined; null: it is valid")
    raw_who: str | None = Field(default=None, description="the captioner's reply to the first request, verbatim")
    raw_what: str | None = Field(default=None, description="and to the second")
    actor: str | None = Field(default=None, description="a character's name or a noun: the one who acts")
    others: int | None = Field(default=None, description="people besides the characters; null: not counted")
    sentence: str | None = Field(default=None, description="the clip in a sentence")
    flags: tuple[str, ...] = Field(default=(), description="doubts about the caption, for review")
    raw_sentence: str | None = Field(default=None, description="the sentence as the captioner wrote it, usable or not")

    @property
    def by_model(self) -> bool:
        """True if it is a model's, from a usable reply."""
        return self.fault is None and self.source != "rules"

    @property
    def is_copied(self) -> bool:
        """True if a better copy of a clip took it over."""
        return any(flag.startswith(COPIED) for flag in self.flags)

    @property
    def is_kept(self) -> bool:
        """True if it answers an earlier form of the question (`[captions] keep_old`), or its replies are gone."""
        return any(flag.startswith(KEPT) for flag in self.flags)


class SpanCaption(Caption):
    """Caption of a span of several clips; `clip_id` is the first clip's id and the preset."""

    preset: str = Field(description="preset of exports that the span is cut for")
    made_from: str = Field(description="fingerprint of the span and the clips that it covers")


class Reviewed(Record):
    """Reviewed values of a clip, as they were published. A field that `fields` does not name was not reviewed."""

    clip_id: str
    fields: tuple[str, ...] = Field(description="reviewed fields of the caption; the value of one may be null")
    keep: bool | None = Field(description="keep or drop, overruling the rules; null: not reviewed")
    S: str | None = None
    MD: str | None = None
    EV: str | None = None
    MA: str | None = None
    SC: Literal[0, 1] | None = None
    ET: Literal[0, 1] | None = None
    ST: Literal[-1, 1] | None = None
    characters: tuple[str, ...] | None = None
    actor: str | None = None
    others: int | None = None
    sentence: str | None = None


class Verdict(Record):
    """Keep or drop, with every reason to drop; a clip that a review keeps has the reasons that it overrules."""

    clip_id: str
    keep: bool
    reasons: tuple[str, ...]
    level: int | None = Field(description="motion level 1..5 by the dataset's edges; null: motion not measured")
    duplicate_of: str | None = Field(description="the clip this one repeats")
    flags: tuple[str, ...] = Field(default=(), description="reasons that the settings only note, such as `logo`")


class Failure(Record):
    """A record that could not be processed, and so is missing in its table."""

    record_id: str
    reason: str


def slug(name: str) -> str:
    """`Kiki's Delivery (1989).mkv` -> `kiki-s-delivery-1989`: lower-case a-z, 0-9 and single dashes, 1..48 long."""
    stem = name.replace("\\", "/").rsplit("/", 1)[-1]
    stem = stem.rsplit(".", 1)[0] if "." in stem.strip(".") else stem
    ascii_only = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", ascii_only.lower()).strip("-")[:48].strip("-") or "film"


def make_film_id(name: str, sha256: str) -> str:
    """The permanent id of a film, from its first file name and its content."""
    return f"{slug(name)}-{sha256[:8]}"


def make_clip_id(film_id: str, start_seconds: float) -> str:
    """The id of a clip: its film and its start in milliseconds, so it does not depend on the scene's number."""
    return f"{film_id}-{round(start_seconds * 1000):09d}"


def is_clip_id(name: str, film_id: str) -> bool:
    """Return True if `make_clip_id` can give this name to a clip of the film."""
    return re.fullmatch(rf"{re.escape(film_id)}-[0-9]{{9,}}", name) is not None


_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), Fraction: pa.string()}


def _arrow_type(annotation: Any) -> pa.DataType:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _arrow_type(args[0])
    if origin in (Union, types.UnionType):
        return _arrow_type(next(arg for arg in args if arg is not type(None)))
    if origin is Literal:
        return _ARROW[type(args[0])]
    if origin is tuple:
        return pa.list_(_arrow_type(args[0]))
    if issubclass(annotation, Record):
        return pa.struct(list(arrow_schema(annotation)))
    return _ARROW[annotation]


def arrow_schema(record: type[Record]) -> pa.Schema:
    """The Arrow schema of a record class: a column per field, nullable if it may be None; inner records are structs."""
    fields = []
    for name, field in record.model_fields.items():
        # pydantic strips the Annotated[] wrapper off a field and leaves the bare type here
        nullable = type(None) in get_args(field.annotation)
        fields.append(pa.field(field.alias or name, _arrow_type(field.annotation), nullable=nullable))
    return pa.schema(fields)
