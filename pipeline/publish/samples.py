"""Samples of the published data: the kept clips, their splits, and the JSON of a clip in a shard.

These records are the interface between the pipeline and the readers of its shards, so they are stricter than the
tables: no conversion, no unknown fields, no NaN.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from pipeline.core.config import ShardSettings
from pipeline.core.dialogue import Dialogue, SpokenLine
from pipeline.core.measurements import QUALITY, Bars, Box, CameraDirection, CameraKind, ClipSound, Looks, Motion
from pipeline.core.records import (
    Caption,
    Clip,
    Damage,
    Film,
    Rate,
    Record,
    RecordError,
    Scene,
    Verdict,
    arrow_schema,
    faults_of,
)
from pipeline.core.store import DatasetRecord, FilmFolder
from pipeline.publish.vocabulary import Vocabulary
from pipeline.reviews.applied import BY_REVIEW_ALONE, CARRIED, read_reviewed, with_reviews
from pipeline.stages.motion_levels import Edges
from prompts.tags import TAGS, instruction

SHARD_SCHEMA: Final = 6
ShardSchema = Literal[6]
"""Schema of samples and their index; readers reject shards of another schema, and a build writes them again."""
Split = Literal["train", "val"]
SPLITS: tuple[Split, ...] = ("train", "val")
Level = Annotated[int, Field(ge=1, le=5)]
_TAGS = {*TAGS, "characters"}
_CLIP = {"clip_id", "film_id", "scene", "index", "start_seconds", "end_seconds", "overlap_seconds", "frames"}
EPISODE = {"series", "season", "episode", "language"}
_LOOKS = {"text_boxes", "logo_boxes", "bars"}
_SOUND = {"language", "sample_rate", "channels", "loudness_lufs", "silent_share", "speech_share"}
_MORE = {"actor", "others", "sentence"}


def scene_splits(
    scenes: Sequence[Scene], damage: Iterable[Damage], place: int, settings: ShardSettings
) -> dict[int, Split]:
    """The split of each scene of a film, by its number.

    If `split` is `film`, or no scene starts in a block of `val`, the whole film is in one split. With its
    position n in `dataset.json`, counted from 0 (`place`), and the share s, it is `val` if floor((n + 1) * s) >
    floor(n * s): with a share of 0.2 the fifth film, the tenth, ... New films are appended, or replace a film in its
    position, so the other films keep their splits. If a film takes the path of another film of the dataset, the later
    films move up.
    """
    share, film_seconds = settings.val_share, film_end_seconds(scenes, damage)
    splits: dict[int, Split] = {row.scene: "train" for row in scenes}
    if settings.split == "time":
        splits = {row.scene: split_of(row.film_id, row.start_seconds, film_seconds, settings) for row in scenes}
    if "val" not in splits.values() and math.floor((place + 1) * share) > math.floor(place * share):
        return dict.fromkeys(splits, "val")
    return splits


def split_of(film_id: str, scene_start_seconds: float, film_seconds: float, settings: ShardSettings) -> Split:
    """The split of a whole scene, by its start.

    Time is divided into blocks of `block_seconds`. Let s = val_share and p = hash(film_id) * (1 - s), with the hash in
    [0, 1). Block b is `val` if floor((b + 1) * s + p) > floor(b * s + p), which is one in every 1/s blocks. So the
    share holds to within one block in every film, `val` is spread over the film, and no threshold of selection moves a
    clip to the other split. Block 0 is never `val`, because s + p < 1. If a film is too short for a block of each
    split, it is divided into just enough shorter blocks, so that it has both splits if a scene starts there.
    """
    share = settings.val_share
    if share in (0, 1):
        return "val" if share else "train"
    blocks_wanted = math.ceil(1 / min(share, 1 - share))
    block = int(scene_start_seconds / min(settings.block_seconds, film_seconds / blocks_wanted))
    digest = hashlib.sha256(film_id.encode()).digest()
    phase = int.from_bytes(digest[:8], "big") / 2**64 * (1 - share)
    return "val" if math.floor((block + 1) * share + phase) > math.floor(block * share + phase) else "train"


def film_end_seconds(scenes: Iterable[Scene], damage: Iterable[Damage]) -> float:
    """End of the part of a film that was read, which `split_of` divides; 0.0 if nothing was read."""
    ends = chain((scene.end_seconds for scene in scenes), (part.end_seconds for part in damage))
    return max(ends, default=0.0)


def _positive(value: Fraction) -> Fraction:
    if value <= 0:
        raise ValueError("it should be greater than 0")
    return value


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError("it should be 0 or more")
    return value


class Published(Record):
    """Base of the records read by other programs: no unknown field, no conversion, no NaN."""

    model_config = ConfigDict(strict=True, serialize_by_alias=True, validate_by_name=True)


class SampleMotion(Published):
    """Motion of the clip, in pixels per step between two of its frames."""

    scope_px: Annotated[float, AfterValidator(_not_negative)]
    level: Level
    flow_model: str
    edges: Edges
    camera_px: float
    unique_frames: int


class SampleCamera(Published):
    """Camera of the clip."""

    kind: CameraKind | None = Field(description="null: undecided")
    direction: CameraDirection | None = Field(description="null: static, shake, or undecided")
    px: float = Field(description="as `motion.camera_px`")


class SampleQuality(Published):
    """Picture quality. Null: not measured, or nothing to measure."""

    sharpness: Annotated[float, Field(ge=0, le=1)] | None
    blockiness: Annotated[float, Field(ge=0)] | None
    banding: Annotated[float, Field(ge=0)] | None


class SampleCaption(Published):
    """Tags of the caption. Null: not measured, masked in training."""

    source: str | None = Field(description="`rules`, or the model that answered; null without a caption")
    S: str | None
    MD: str | None
    EV: str | None
    MA: str | None
    SC: Literal[0, 1] | None
    ET: Literal[0, 1] | None
    ST: Literal[-1, 1] | None
    characters: tuple[str, ...] | None
    actor: str | None = Field(description="a character's name or a noun: the one who acts")
    others: int | None = Field(description="people besides the characters; null: not counted")
    sentence: str | None
    flags: tuple[str, ...] = Field(description="doubts about the caption")
    reviewed: tuple[str, ...] = Field(description="fields that a reviewer has confirmed or corrected")


def is_by_rules_alone(caption: Caption | SampleCaption) -> bool:
    """Return True if a caption by rules names neither subject nor character; a review may have added them."""
    return caption.source == "rules" and not (caption.S or caption.actor or caption.characters)


def instruction_of(caption: Caption | SampleCaption) -> str:
    """Return the instruction line; empty if none of its tags is known."""
    return instruction(caption.characters, caption.S, caption.MD, caption.EV, caption.MA, caption.actor)


class DialogueLine(Published):
    """A line spoken in a clip."""

    start_seconds: Annotated[float, AfterValidator(_not_negative)] = Field(description="from the clip's start")
    end_seconds: float
    text: str
    speaker: str | None = Field(description="as the subtitles name it")
    language: str | None = Field(description="of the subtitles, as `ja`; null: not stated")


class SampleSound(Published):
    """Sound of the clip, in its mp4."""

    language: str | None = Field(description="of the track, as `jpn`; null: not stated")
    sample_rate: int
    channels: int
    loudness_lufs: float | None = Field(description="integrated; null: silent")
    silent_share: Annotated[float, Field(ge=0, le=1)]
    speech_share: Annotated[float, Field(ge=0, le=1)]


class Sample(Published):
    """`<clip_id>.json`: facts about one clip in a shard. Null means not measured; an empty list, nothing found."""

    schema_version: ShardSchema = Field(default=SHARD_SCHEMA, alias="schema")
    clip_id: str
    film_id: str
    series: str | None = Field(description="series that the film is an episode of")
    season: int | None
    episode: int | None
    language: str | None = Field(description="of the film's speech, as `ja`; null: not stated")
    scene: int
    index: int = Field(description="counts every clip of the film, dropped ones too, so neighbours are known")
    start_seconds: float
    end_seconds: float
    overlap_seconds: float = Field(description="shared with the clip before; training windows leave out such clips")
    split: Split
    fps: Annotated[Rate, AfterValidator(_positive)] = Field(
        description='an exact fraction as text, `"8"` or `"24000/1001"`: JSON numbers would round it'
    )
    frames: int
    motion: SampleMotion
    camera: SampleCamera
    quality: SampleQuality
    caption: SampleCaption
    dialogue: tuple[DialogueLine, ...] | None
    sound: SampleSound | None
    flags: tuple[str, ...] = Field(description="reasons that the settings note instead of dropping the clip")
    text_boxes: tuple[Box, ...] | None
    logo_boxes: tuple[Box, ...] | None
    bars: Bars | None


@dataclass(frozen=True)
class KeptClip:
    """A clip kept by selection, ready to be written."""

    sample: Sample
    clip: Clip
    path: Path
    sound: ClipSound | None = None

    @property
    def text(self) -> str:
        """The instruction line; empty if none of its tags is known."""
        return instruction_of(self.sample.caption)

    @property
    def json(self) -> str:
        """The sample as JSON, its fields in the order of the contract."""
        return json.dumps(self.sample.model_dump(mode="json"), ensure_ascii=False, allow_nan=False)

    @property
    def sha256(self) -> str:
        """SHA-256 of the mp4."""
        return self.sound.muxed_sha256 if self.sound else self.clip.sha256

    def video(self) -> bytes:
        """The clip as MP4, with its sound if it has one. Raises RecordError if a file is missing or has changed."""
        from pipeline.publish.clip_video import published_video  # `status` reads no clip

        return published_video(self.clip, self.path, self.sound)


def kept_clips(
    folder: FilmFolder, record: DatasetRecord, settings: ShardSettings, vocabulary: Vocabulary
) -> list[KeptClip]:
    """The clips of a film for the shards, in time order; empty if the film has no verdicts (it failed earlier).

    Raises:
        RecordError: a kept clip lacks its motion, or has another optical-flow model or captioner than the dataset.
        StoreError: a table cannot be read.
    """
    if not folder.table_path("verdicts").exists():
        return []
    place = [entry.film_id for entry in record.films].index(folder.film_id)
    splits = scene_splits(folder.read("scenes", Scene), folder.read("damage", Damage), place, settings)
    verdicts = {verdict.clip_id: verdict for verdict in folder.read("verdicts", Verdict) if verdict.keep}
    motions = {motion.clip_id: motion for motion in folder.read("motion", Motion)}
    looks = {row.clip_id: row for row in folder.read_if_made("looks", Looks)}
    film, reviewed, dialogue = folder.film, read_reviewed(folder), Dialogue.of(folder)
    sounds = folder.sounds() if record.keeps_sound else {}
    captions = with_reviews([*folder.read("captions", Caption), *folder.read_if_made(CARRIED, Caption)], reviewed)
    kept = []
    for clip in folder.read("clips", Clip):
        if verdict := verdicts.pop(clip.clip_id, None):
            caption, motion = captions.get(clip.clip_id), motions.get(clip.clip_id)
            review = reviewed.get(clip.clip_id)
            published = caption and vocabulary.applied(caption)
            fields = review.fields if review else ()
            seen = looks.get(clip.clip_id)
            said = dialogue.within(clip.start_seconds, clip.end_seconds)
            split, sound = splits[clip.scene], sounds.get(clip.clip_id)
            sample = make_sample(record, film, clip, verdict, motion, seen, published, split, fields, said, sound)
            kept.append(KeptClip(sample, clip, folder.clip_path(clip.clip_id), sound))
    for clip_id in verdicts:
        raise RecordError(clip_id, "is kept but no such clip was cut; run `animegamer build` again")
    return sorted(kept, key=lambda clip: clip.sample.start_seconds)


def hub_features() -> list[dict[str, Any]]:
    """The columns of a shard, in the form of the front matter of a Hugging Face data card.

    Without them, `datasets` infers types from five samples: it assumes that a tag is always null if these are null.
    """
    columns = [pa.field(name, pa.string()) for name in ("__key__", "__url__", "txt")]
    columns += [pa.field("mp4", pa.binary()), pa.field("json", pa.struct(list(arrow_schema(Sample))))]
    return [_hub_feature(column) for column in columns]


def _hub_feature(column: pa.Field) -> dict[str, Any]:
    kind = column.type
    if pa.types.is_struct(kind):
        return {"name": column.name, "struct": [_hub_feature(field) for field in kind]}
    if pa.types.is_list(kind):
        value = kind.value_type
        items = [_hub_feature(field) for field in value] if pa.types.is_struct(value) else _hub_dtype(value)
        return {"name": column.name, "list": items}
    return {"name": column.name, "dtype": _hub_dtype(kind)}


def _hub_dtype(kind: pa.DataType) -> str:
    return "float64" if pa.types.is_float64(kind) else str(kind)  # Arrow names it double


def make_sample(
    record: DatasetRecord,
    film: Film,
    clip: Clip,
    verdict: Verdict,
    motion: Motion | None,
    looks: Looks | None,
    caption: Caption | None,
    split: Split,
    reviewed: Collection[str] = (),
    dialogue: Sequence[SpokenLine] | None = None,
    sound: ClipSound | None = None,
) -> Sample:
    """Build the sample of a kept clip; the tags of a quarantined caption are null.

    `caption` is the published caption, `reviewed` its reviewed fields; `dialogue` is in seconds from the clip's start.

    Raises:
        RecordError: a fact is missing, not finite, or measured by another model than the dataset's.
    """
    if motion is None or verdict.level is None:
        raise RecordError(clip.clip_id, "is kept but its motion is not measured; run `animegamer build` again")
    if motion.flow_model != record.flow_model:
        reason = f"its motion is by {motion.flow_model}, the dataset's by {record.flow_model}; build again with one"
        raise RecordError(clip.clip_id, reason)
    if caption and caption.source not in (record.captioner, BY_REVIEW_ALONE):
        reason = f"its caption is by {caption.source}, the dataset's by {record.captioner}; build again with one"
        raise RecordError(clip.clip_id, reason)
    known = caption if caption and not caption.fault else None
    tags = known.model_dump(include=_TAGS | _MORE) if known else dict.fromkeys(_TAGS | _MORE)
    try:
        return Sample.model_validate(
            film.model_dump(include=EPISODE)
            | clip.model_dump(include=_CLIP)
            | {
                "split": split,
                "fps": clip.fps,
                "motion": motion.model_dump(include={"flow_model", "scope_px", "camera_px", "unique_frames"})
                | {"level": verdict.level, "edges": record.edges},
                "camera": {
                    "kind": motion.camera_kind,
                    "direction": motion.camera_direction,
                    "px": motion.camera_px,
                },
                "quality": {name: getattr(looks, name, None) for name in QUALITY},
                "caption": tags
                | {
                    "source": (caption and caption.source) or None,
                    "flags": caption.flags if caption else (),
                    "reviewed": tuple(sorted(reviewed)),
                },
                "dialogue": None if dialogue is None else tuple(line.model_dump() for line in dialogue),
                "sound": sound and sound.model_dump(include=_SOUND),
                "flags": verdict.flags,
            }
            | (looks.model_dump(include=_LOOKS) if looks else dict.fromkeys(_LOOKS))
        )
    except ValidationError as error:
        reason = f"cannot be published ({faults_of(error)}); build again with measured values"
        raise RecordError(clip.clip_id, reason) from error
