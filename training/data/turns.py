"""The turns of a data set: what is known of each clip, its frames, and the catalog of all of them.

Frames are decoded with decord, from the bytes in the shard. What nobody measured stays unknown: a turn is used for what
it does say, and the loss leaves the rest out.

Letters of the shapes: T frames, H W pixels, C colours (RGB).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

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
from pipeline.publish.samples import Sample
from training.data.shards import ShardFile, unpack

_MOST_DISTORTION = 0.02
_UNMEASURED = {"social": 0, "entertainment": 0, "stamina": -1}
"""What a prompt says where nobody measured: nothing happens, and acting tires."""


class RecordedTurn(Record):
    """A clip as a turn of a game: what the shard says of it, without the video."""

    sample: Sample
    instruction: str
    """The instruction line; empty if nothing is known of the clip."""
    shard: str
    """Name of the shard it lies in."""

    @property
    def clip_id(self) -> str:
        """The clip's id."""
        return self.sample.clip_id

    @property
    def state(self) -> State:
        """The state as a prompt has it: where nobody measured, social 0, entertainment 0, stamina -1."""
        caption = self.sample.caption
        known = {"social": caption.SC, "entertainment": caption.ET, "stamina": caption.ST}
        filled = {name: _UNMEASURED[name] if value is None else value for name, value in known.items()}
        return State(level=self.sample.motion.level, **filled)

    @property
    def measured(self) -> tuple[bool, bool, bool, bool]:
        """For each of `state.values` whether it was measured; the loss leaves the others out."""
        caption = self.sample.caption
        return True, caption.SC is not None, caption.ET is not None, caption.ST is not None


@dataclass(frozen=True)
class PackedTurn:
    """A recorded turn with its video, as the shard holds it."""

    turn: RecordedTurn
    video: bytes
    """The MP4 file."""

    @property
    def clip_id(self) -> str:
        """The clip's id."""
        return self.turn.clip_id

    def frames(self, height: int, width: int, count: int = 17) -> Tensor:
        """The frames `frames_THWC`, uint8 RGB.

        Clips have as many frames as the autoencoder wants, or one less: then the last is repeated.

        Args:
            height: pixels; the clip is scaled where its own size is another.
            width: pixels.
            count: frames that the shot decoder works with, 17 for the published model.

        Raises:
            UserError: the video cannot be decoded, has another number of frames, or another shape of picture.
        """
        promised = self.turn.sample.frames
        if promised not in (count - 1, count):
            remedy = f"this model takes {count - 1} or {count}; set `clips.frames` and build again"
            raise UserError(f"{self._name} has {promised} frames; {remedy}")
        frames_THWC = torch.from_numpy(self._decoded())
        found, rows, columns = frames_THWC.shape[:3]
        if found != promised:
            raise UserError(f"{self._name} has {found} frames, {promised} by its JSON; build the data set again")
        if abs(columns * height / (rows * width) - 1) > _MOST_DISTORTION:
            remedy = "set `clips.width` and `clips.height` and build again, or give the model another size"
            raise UserError(f"{self._name} is {columns}x{rows}; {width}x{height} would distort it: {remedy}")
        return _scaled(frames_THWC[[*range(found), *[found - 1] * (count - found)]], height, width)

    @property
    def _name(self) -> str:
        return f"{self.turn.shard}: clip {self.clip_id}"

    def _decoded(self) -> NDArray[np.uint8]:
        """All frames at their own size: decord's own scaling fails for narrow pictures."""
        try:
            reader = VideoReader(BytesIO(self.video), num_threads=1)
            frames_THWC: NDArray[np.uint8] = reader.get_batch(range(len(reader))).asnumpy()
        except (DECORDError, RuntimeError) as error:  # RuntimeError: it cannot even be opened
            raise UserError(f"{self._name} cannot be decoded ({str(error)[:200]}); build the data set again") from error
        return frames_THWC


class _Kept(Record):
    """A catalog on disk, so that a data set far away is not read through at every start."""

    fingerprint: str
    turns: tuple[RecordedTurn, ...]


@dataclass(frozen=True)
class Catalog:
    """All turns of some shards, without their videos, film after film and in time order."""

    fingerprint: str
    """A hash of the shards' hashes: equal for equal data, wherever it lies."""
    turns: tuple[RecordedTurn, ...]
    shards: tuple[ShardFile, ...]

    @classmethod
    def read(cls, shards: Iterable[ShardFile], kept: Path | None = None) -> Catalog:
        """Read through the shards once.

        Args:
            shards: from `open_shards`.
            kept: a file to keep the catalog in; it is used as long as the shards are the same.

        Raises:
            UserError: a shard cannot be used, its turns are out of order, or a clip is there twice.
        """
        shards = tuple(shards)
        made_from = fingerprint({shard.name: shard.entry.sha256 for shard in shards})
        turns = _kept_turns(kept, made_from) if kept else None
        if turns is None:
            turns = tuple(read_texts(shards))
            _check_order(turns)
            if kept:
                with replacing(kept) as temporary:
                    temporary.write_text(_Kept(fingerprint=made_from, turns=turns).model_dump_json(by_alias=True))
        return cls(made_from, turns, shards)

    def __len__(self) -> int:
        return len(self.turns)

    @cached_property
    def by_id(self) -> Mapping[str, RecordedTurn]:
        """The turns by the id of their clip."""
        return {turn.clip_id: turn for turn in self.turns}

    @cached_property
    def by_shard(self) -> Mapping[str, tuple[RecordedTurn, ...]]:
        """The turns of each shard, by its name."""
        found: dict[str, list[RecordedTurn]] = {shard.name: [] for shard in self.shards}
        for turn in self.turns:
            found[turn.shard].append(turn)
        return {name: tuple(turns) for name, turns in found.items()}


def read_turns(shards: Iterable[ShardFile]) -> Iterator[PackedTurn]:
    """The turns of shards with their videos, one after the other.

    Raises:
        UserError: a shard or a clip in it cannot be used; the message names both.
    """
    for shard in shards:
        for key, members in unpack(shard, ("json", "txt", "mp4")):
            yield PackedTurn(_turn(shard, key, members), members["mp4"])


def read_texts(shards: Iterable[ShardFile]) -> Iterator[RecordedTurn]:
    """The turns of shards without their videos; otherwise as `read_turns`."""
    for shard in shards:
        for key, members in unpack(shard, ("json", "txt")):
            yield _turn(shard, key, members)


def _turn(shard: ShardFile, key: str, members: Mapping[str, bytes]) -> RecordedTurn:
    where = f"{shard.address}: clip {key}"
    try:
        sample = Sample.model_validate_json(members["json"])
        text = members["txt"].decode()
    except ValidationError as error:
        raise UserError(f"{where}: its JSON is no sample ({faults_of(error)}); build the data set again") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: its instruction is no UTF-8 text; build the data set again") from error
    claimed = (sample.clip_id, sample.film_id, sample.split)
    if claimed != (key, shard.entry.film_id, shard.entry.split):
        raise UserError(f"{where}: its JSON is that of {' '.join(claimed)}; build the data set again")
    return RecordedTurn(sample=sample, instruction=text, shard=shard.name)


def _check_order(turns: tuple[RecordedTurn, ...]) -> None:
    latest: dict[str, tuple[int, float]] = {}
    for turn in turns:
        film, place = turn.sample.film_id, (turn.sample.index, turn.sample.start_seconds)
        before = latest.get(film, (-1, -1.0))
        if not (place[0] > before[0] and place[1] > before[1]):
            raise UserError(f"{turn.shard}: clip {turn.clip_id} is not in time order; build the data set again")
        latest[film] = place


def _kept_turns(path: Path, made_from: str) -> tuple[RecordedTurn, ...] | None:
    try:
        kept = _Kept.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None  # read anew: it can always be made again
    return kept.turns if kept.fingerprint == made_from else None


def _scaled(frames_THWC: Tensor, height: int, width: int) -> Tensor:
    if frames_THWC.shape[1:3] == (height, width):
        return frames_THWC
    frames_TCHW = frames_THWC.permute(0, 3, 1, 2)
    scaled_TCHW: Tensor = resize(frames_TCHW, [height, width], InterpolationMode.BICUBIC, antialias=True)
    return scaled_TCHW.permute(0, 2, 3, 1).contiguous()
