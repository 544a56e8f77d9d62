"""Turns of a dataset: metadata and frames of each clip, and the catalog of all turns.

Frames are decoded with decord from the bytes in the shard. Values that were not measured stay unknown and are masked in
the loss; the turn is used for its other values.

Letters of the shapes: T frames, H W pixels, C colours (RGB).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decord import DECORDError, VideoReader
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2.functional import resize

from models.tokens import State
from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import Record, faults_of
from pipeline.publish.samples import Sample, SampleCaption
from training.data.shards import ShardFile, unpack

_MOST_DISTORTION = 0.02
_MOST_OFFERED = 18
_UNMEASURED = {"social": 0, "entertainment": 0, "stamina": -1}
"""Fillers of unmeasured values; prompts hide them and the loss masks them."""


class RecordedTurn(Record):
    """Clip as a turn of a game: metadata from the shard, without the video."""

    sample: Sample
    instruction: str
    """Instruction line; empty if the clip has no caption."""
    shard: str

    @property
    def clip_id(self) -> str:
        """The clip's id."""
        return self.sample.clip_id

    @property
    def state(self) -> State:
        """State for a prompt, with fillers for unmeasured values."""
        caption = self.sample.caption
        known = {"social": caption.SC, "entertainment": caption.ET, "stamina": caption.ST}
        filled = {name: _UNMEASURED[name] if value is None else value for name, value in known.items()}
        return State(level=self.sample.motion.level, **filled)

    @property
    def measured(self) -> tuple[bool, bool, bool, bool]:
        """True for each measured value of the state; prompts hide the others, and the loss masks them."""
        caption = self.sample.caption
        return True, caption.SC is not None, caption.ET is not None, caption.ST is not None


@dataclass(frozen=True)
class PackedTurn:
    """Recorded turn with its encoded video."""

    turn: RecordedTurn
    video: bytes

    @property
    def clip_id(self) -> str:
        """The clip's id."""
        return self.turn.clip_id

    def frames(self, height: int, width: int, count: int = 17) -> Tensor:
        """Decode the frames [T, H, W, C], uint8 RGB.

        A clip has `count` frames, or one less: then the last frame is repeated.

        Args:
            height: height in pixels; the clip is scaled if its size differs.
            width: width in pixels.
            count: frames of the shot decoder, 17 for the published model.

        Raises:
            UserError: the video cannot be decoded, or has another number of frames or another aspect ratio.
        """
        # 1. Refuse a clip of another length before it is decoded.
        promised = self.turn.sample.frames
        if promised not in (count - 1, count):
            remedy = f"this model takes {count - 1} or {count}; set `clips.frames` and build again"
            raise UserError(f"{self._name} has {promised} frames; {remedy}")
        # 2. Decode, and compare the video with its JSON and with the shape that the model takes.
        frames_THWC = torch.from_numpy(self._decoded())
        found, rows, columns = frames_THWC.shape[:3]
        if found != promised:
            raise UserError(f"{self._name} has {found} frames, {promised} by its JSON; build the dataset again")
        if abs(columns * height / (rows * width) - 1) > _MOST_DISTORTION:
            remedy = "set `clips.width` and `clips.height` and build again, or give the model another size"
            raise UserError(f"{self._name} is {columns}x{rows}; {width}x{height} would distort it: {remedy}")
        # 3. Repeat the last frame of a clip that is one short, and scale.
        return scaled(frames_THWC[[*range(found), *[found - 1] * (count - found)]], height, width)

    @property
    def _name(self) -> str:
        return f"{self.turn.shard}: clip {self.clip_id}"

    def _decoded(self) -> NDArray[np.uint8]:
        """Decode all frames at their original size: decord's scaling fails for narrow pictures."""
        try:
            reader = VideoReader(BytesIO(self.video), num_threads=1)
            frames_THWC: NDArray[np.uint8] = reader.get_batch(range(len(reader))).asnumpy()
        except (DECORDError, RuntimeError) as error:  # RuntimeError: the file cannot be opened
            raise UserError(f"{self._name} cannot be decoded ({str(error)[:200]}); build the dataset again") from error
        return frames_THWC


class _CachedCatalog(Record):
    """Catalog cached on disk, so that a remote dataset is not read at every start."""

    fingerprint: str
    turns: tuple[RecordedTurn, ...]


@dataclass(frozen=True)
class Part:
    """Turns of one dataset of a mixture."""

    turns: tuple[RecordedTurn, ...]
    weight: int
    """Number of times that they occur in an epoch."""


@dataclass(frozen=True)
class Catalog:
    """Turns of a list of shards, without videos, grouped by film and in time order."""

    fingerprint: str
    """See `fingerprint_of`."""
    turns: tuple[RecordedTurn, ...]
    shards: tuple[ShardFile, ...]
    mixed: tuple[Part, ...] = ()
    """Turns by dataset, of a mixture of several."""
    renamed: str = ""
    """Hash of the characters' changed names; empty if the instructions are the shards'."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """Turns by dataset."""
        return self.mixed or (Part(self.turns, 1),)

    @classmethod
    def read(cls, shards: Iterable[ShardFile], cached: Path | None = None) -> Catalog:
        """Read the turns of the shards, or their cached catalog.

        Args:
            cached: cache file of the catalog; valid while the shards are unchanged.

        Raises:
            UserError: a shard is damaged, its turns are out of order, or a clip is duplicated.
        """
        shards = tuple(shards)
        made_from = fingerprint_of(shards)
        # 1. Take the cached turns if they are of these shards. A damaged cache counts as none.
        turns = _cached_turns(cached, made_from) if cached else None
        if turns is None:
            # 2. Otherwise read the texts of all shards. Windows and the past of a turn rely on the order in time.
            turns = tuple(read_texts(shards))
            _check_order(turns)
            # 3. Cache them: a remote dataset is then not fetched at the next start.
            if cached:
                with replacing(cached) as temporary:
                    temporary.write_text(
                        _CachedCatalog(fingerprint=made_from, turns=turns).model_dump_json(by_alias=True)
                    )
        return cls(made_from, turns, shards)

    def __len__(self) -> int:
        return len(self.turns)

    @cached_property
    def by_id(self) -> Mapping[str, RecordedTurn]:
        """Turns by clip id."""
        return {turn.clip_id: turn for turn in self.turns}

    @cached_property
    def by_shard(self) -> Mapping[str, tuple[RecordedTurn, ...]]:
        """Turns by the name of their shard."""
        found: dict[str, list[RecordedTurn]] = {shard.name: [] for shard in self.shards}
        for turn in self.turns:
            found[turn.shard].append(turn)
        return {name: tuple(turns) for name, turns in found.items()}


def fingerprint_of(shards: Iterable[ShardFile]) -> str:
    """Return a hash of the shards' hashes by the index: equal for equal data, independent of location."""
    return fingerprint({shard.name: shard.entry.sha256 for shard in shards})


def has_padded(turns: Iterable[RecordedTurn], frames: int) -> bool:
    """Return whether clips are padded to a shot decoder's frames: it then learns to repeat its last frame."""
    return any(turn.sample.frames < frames for turn in turns)


def offered(captions: Collection[SampleCaption]) -> dict[str, Any]:
    """Return what the game page offers to click, by key of a checkpoint's configuration and most frequent first.

    These are all characters, the most frequent motions and places, and their pairs that occur in a clip; a key without
    any is left out.
    """
    found = {
        "characters": Counter(name for caption in captions for name in caption.characters or ()).most_common(),
        "motions": Counter(caption.MD for caption in captions if caption.MD).most_common(_MOST_OFFERED),
        "places": Counter(caption.EV for caption in captions if caption.EV).most_common(_MOST_OFFERED),
    }
    words = {key: tuple(word for word, _ in counted) for key, counted in found.items() if counted}
    together = _together(captions, words)
    return {**words, "together": together} if together else {**words}


def _together(captions: Iterable[SampleCaption], words: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the motions that a character does and the places where it is, and the places of each motion."""
    characters, motions, places = (words.get(key, ()) for key in ("characters", "motions", "places"))
    pairs: set[tuple[str | None, str | None]] = set()
    for caption in captions:
        names = caption.characters or ()
        pairs |= {(name, caption.MD) for name in ([caption.actor] if caption.actor else names)}
        pairs |= {(name, caption.EV) for name in (*names, caption.MD)}
    later = dict.fromkeys(characters, (*motions, *places)) | dict.fromkeys(motions, places)
    found = {word: tuple(other for other in others if (word, other) in pairs) for word, others in later.items()}
    return {word: others for word, others in found.items() if others}


def read_turns(shards: Iterable[ShardFile]) -> Iterator[PackedTurn]:
    """Yield the turns of shards with their videos.

    Raises:
        UserError: a shard or one of its clips is damaged; the message names both.
    """
    for shard in shards:
        for key, members in unpack(shard, ("json", "txt", "mp4")):
            yield PackedTurn(_turn(shard, key, members), members["mp4"])


def read_texts(shards: Iterable[ShardFile]) -> Iterator[RecordedTurn]:
    """Yield the turns of shards without their videos; otherwise as `read_turns`."""
    for shard in shards:
        for key, members in unpack(shard, ("json", "txt")):
            yield _turn(shard, key, members)


def _turn(shard: ShardFile, key: str, members: Mapping[str, bytes]) -> RecordedTurn:
    where = f"{shard.address}: clip {key}"
    try:
        sample = Sample.model_validate_json(members["json"])
        text = members["txt"].decode()
    except ValidationError as error:
        raise UserError(
            f"{where}: its JSON is not a valid sample ({faults_of(error)}); build the dataset again"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: its instruction is not UTF-8 text; build the dataset again") from error
    claimed = (sample.clip_id, sample.film_id, sample.split)
    if claimed != (key, shard.entry.film_id, shard.entry.split):
        raise UserError(f"{where}: its JSON belongs to {' '.join(claimed)}; build the dataset again")
    return RecordedTurn(sample=sample, instruction=text, shard=shard.name)


def _check_order(turns: tuple[RecordedTurn, ...]) -> None:
    latest: dict[str, tuple[int, float]] = {}
    for turn in turns:
        film, time = turn.sample.film_id, (turn.sample.index, turn.sample.start_seconds)
        before = latest.get(film, (-1, -1.0))
        if not (time[0] > before[0] and time[1] > before[1]):
            raise UserError(f"{turn.shard}: clip {turn.clip_id} is not in time order; build the dataset again")
        latest[film] = time


def _cached_turns(path: Path, made_from: str) -> tuple[RecordedTurn, ...] | None:
    try:
        cached = _CachedCatalog.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return cached.turns if cached.fingerprint == made_from else None


def scaled(frames_THWC: Tensor, height: int, width: int) -> Tensor:
    """Return uint8 frames at another size, scaled bicubically."""
    if frames_THWC.shape[1:3] == (height, width):
        return frames_THWC
    frames_TCHW = frames_THWC.permute(0, 3, 1, 2)
    scaled_TCHW: Tensor = resize(frames_TCHW, [height, width], InterpolationMode.BICUBIC, antialias=True)
    return scaled_TCHW.permute(0, 2, 3, 1).contiguous()
