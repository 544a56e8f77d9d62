"""A cache of what frozen networks say of each clip, so that training need not ask them again in every epoch.

    FOLDER/<feature>/<split>/<film_id>-000000.safetensors      a file for each shard, a tensor for each clip by its id

The header of a file says what it was made from: the shard's hash, and all that the feature names as its ingredients
(the encoder's weights, the size of the frames, ...). A file is used only while all of that is the same. Otherwise it is
stale, what changed is told, and it is made again. Files appear whole or not at all, one after the other: a run that was
killed goes on with the shard it was at. Processes may share the work, each with its own shards.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from models.config import Base, ModelConfig
from models.hub import pinned
from pipeline.core.errors import UserError
from pipeline.core.ingredients import Ingredients, changed
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Record
from pipeline.publish.shards import file_sha256
from training.data.shards import ShardFile
from training.data.turns import Catalog, PackedTurn, RecordedTurn, read_turns

_HEADER = "made_from"
"""The one entry of a file's metadata: safetensors writes several in an order that changes."""

VERSION = 1
"""Raised by hand when the same clips and networks would give other features."""

_COMMIT = re.compile("[0-9a-f]{40}")

Item = TypeVar("Item", PackedTurn, RecordedTurn)


@dataclass(frozen=True)
class Feature:
    """One tensor for every clip."""

    name: str
    """Its folder in the cache: `latents`, `patches`, `text`, `shot_tokens`, `predictions`."""
    shape: tuple[int, ...]
    """Of one clip's tensor."""
    dtype: torch.dtype
    """See `storage_dtype`."""
    ingredients: Mapping[str, str]
    """What it is made from besides its shard, each under a name that tells a user what changed: networks, settings, the
    ingredients of features it is made of, and the catalog's fingerprint if it also depends on other shards."""

    def bytes_of(self, clips: int) -> int:
        """Disk space for so many clips; a file's header is some 100 bytes a clip and not counted."""
        return clips * torch.Size(self.shape).numel() * self.dtype.itemsize


class _MadeFrom(Record):
    """The header of a file."""

    version: int = VERSION
    feature: str
    shape: tuple[int, ...]
    dtype: str
    shard: str
    ingredients: dict[str, str]

    def all(self) -> Ingredients:
        """Return all that a file depends on, by name."""
        return {**self.ingredients, **self.model_dump(exclude={"ingredients"})}


class FeatureCache:
    """The features of a catalog's turns in one folder."""

    def __init__(self, folder: Path, catalog: Catalog, features: Iterable[Feature]) -> None:
        """Name the folder, the turns, and the features as they would be made now; nothing is read yet."""
        self.folder, self.catalog = folder, catalog
        self.features = {feature.name: feature for feature in features}
        self._open: dict[tuple[str, str], Any] = {}
        self._hashes = {shard.name: shard.entry.sha256 for shard in catalog.shards}

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process goes what it was made from; it opens the files itself."""
        return FeatureCache, (self.folder, self.catalog, tuple(self.features.values()))

    def get(self, name: str, clip_id: str) -> Tensor:
        """A feature of a clip, in the precision it is stored in.

        Raises:
            UserError: it was not made yet, is stale, or its file is damaged.
        """
        shard = self.catalog.by_id[clip_id].shard
        if (name, shard) not in self._open:
            if fault := self._fault(name, shard):
                remedy = "fill the cache again"
                raise UserError(f"{self._path(name, shard)} {fault}; {remedy}")
            self._open[name, shard] = safe_open(self._path(name, shard), "pt")
        tensor: Tensor = self._open[name, shard].get_tensor(clip_id)
        return tensor.clone()  # what safetensors gives is the mapped file itself

    def faults(self, name: str) -> dict[str, str]:
        """For each shard whose file of a feature cannot be used: why not, such as `is stale: autoencoder changed`."""
        faults = {shard.name: self._fault(name, shard.name) for shard in self.catalog.shards}
        return {shard: fault for shard, fault in faults.items() if fault}

    def bytes_to_make(self, name: str) -> int:
        """Disk space that `fill` will take for a feature."""
        clips = sum(len(self.catalog.by_shard[shard]) for shard in self.faults(name))
        return self.features[name].bytes_of(clips)

    def fill_from_videos(
        self,
        name: str,
        encode: Callable[[Sequence[PackedTurn]], Tensor],
        *,
        batch_size: int,
        shards: Iterable[ShardFile] | None = None,
        progress: Progress = silent,
    ) -> int:
        """Make what is missing or stale of a feature that is computed from the clips.

        Args:
            name: of the feature.
            encode: gives one row of the feature's shape for each turn, on any device.
            batch_size: turns given to it at once; fewer at the end of a shard.
            shards: this process's part of them; all by default.
            progress: called after every batch with the clips done and the clips in all.

        Returns:
            How many clips were done.

        Raises:
            UserError: a shard or a clip cannot be read, or the encoder gave another shape or numbers that are not
                finite.
        """
        return self._fill(name, encode, lambda shard: read_turns([shard]), batch_size, shards, progress)

    def fill_from_turns(
        self,
        name: str,
        encode: Callable[[Sequence[RecordedTurn]], Tensor],
        *,
        batch_size: int,
        shards: Iterable[ShardFile] | None = None,
        progress: Progress = silent,
    ) -> int:
        """The same for a feature that is computed without the clips: from texts, or from other features."""
        turns = self.catalog.by_shard
        return self._fill(name, encode, lambda shard: turns[shard.name], batch_size, shards, progress)

    def _fill(
        self,
        name: str,
        encode: Callable[[Sequence[Item]], Tensor],
        items_of: Callable[[ShardFile], Iterable[Item]],
        batch_size: int,
        shards: Iterable[ShardFile] | None,
        progress: Progress,
    ) -> int:
        if batch_size < 1:
            raise UserError(f"{name}: a batch of {batch_size} clips is none; take 1 or more")
        to_make = [
            shard for shard in (self.catalog.shards if shards is None else shards) if self._fault(name, shard.name)
        ]
        done, total = 0, sum(shard.entry.samples for shard in to_make)
        for shard in to_make:
            tensors: dict[str, Tensor] = {}
            items = iter(items_of(shard))
            while batch := list(islice(items, batch_size)):
                tensors |= _rows(self.features[name], [item.clip_id for item in batch], encode(batch))
                done += len(batch)
                progress(done, total)
            self._write(name, shard.name, tensors)
        return done

    def _write(self, name: str, shard: str, tensors: Mapping[str, Tensor]) -> None:
        """Under a temporary name that is always the same one, so that nothing piles up where runs are killed."""
        path = self._path(name, shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}")
        with temporary.open("wb") as file:
            file.write(save(dict(tensors), metadata={_HEADER: self._made_from(name, shard).model_dump_json()}))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        self._open.pop((name, shard), None)

    def _path(self, name: str, shard: str) -> Path:
        return self.folder / name / f"{shard.removesuffix('.tar')}.safetensors"

    def _made_from(self, name: str, shard: str) -> _MadeFrom:
        feature = self.features[name]
        return _MadeFrom(
            feature=name,
            shape=feature.shape,
            dtype=str(feature.dtype),
            shard=self._hashes[shard],
            ingredients=dict(feature.ingredients),
        )

    def _fault(self, name: str, shard: str) -> str | None:
        """Why the file of a shard cannot be used; None if it can."""
        path = self._path(name, shard)
        if not path.exists():
            return "is missing"
        try:
            metadata: dict[str, str] | None = safe_open(path, "pt").metadata()  # type: ignore[no-untyped-call]
            header = (metadata or {}).get(_HEADER, "")
            before, now = _MadeFrom.model_validate_json(header), self._made_from(name, shard)
        except (SafetensorError, ValidationError, OSError) as error:
            return f"is damaged ({str(error).splitlines()[0]})"
        names = changed(before.all(), now.all())
        return f"is stale: {', '.join(names)} changed" if names else None


def storage_dtype(config: ModelConfig) -> torch.dtype:
    """float16 at full size, where 20,000 clips take some 50 GB of it; float32 at `tiny`, which has nothing to save."""
    return torch.float16 if config.size == "full" else torch.float32


def made_by_base(name: str, base: Base) -> dict[str, str]:
    """The ingredient that a frozen base is: on the hub its commit, in a folder the hash of all its files.

    Raises:
        UserError: there is no such base, or it is on the hub and its commit is neither configured nor cached.
    """
    place = base if _COMMIT.fullmatch(base.revision or "") else pinned(base)
    subfolders = sorted({place.subfolder, place.tokenizer_subfolder or place.subfolder})
    if not Path(place.id).is_dir():
        return {name: f"{place.id}@{place.revision} {' '.join(subfolders)}".rstrip()}
    folders = [Path(place.id) / subfolder for subfolder in subfolders]
    return made_by_files(name, *(path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()))


def made_by_files(name: str, *paths: Path) -> dict[str, str]:
    """The ingredient that some files of weights are: the hash of their names and contents."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {file_sha256(path)}\n".encode())
    return {name: digest.hexdigest()}


def _rows(feature: Feature, clip_ids: Sequence[str], rows: Tensor) -> dict[str, Tensor]:
    """A batch as tensors of its own for each clip."""
    if rows.shape != (len(clip_ids), *feature.shape):
        wanted = (len(clip_ids), *feature.shape)
        raise UserError(f"{feature.name}: the encoder gave {tuple(rows.shape)} where {wanted} was announced")
    stored = rows.detach().to("cpu", feature.dtype)
    for clip_id, row in zip(clip_ids, stored, strict=True):
        if not row.isfinite().all():
            remedy = "look at the clip, or compute in a wider precision"
            raise UserError(f"{feature.name} of clip {clip_id} has numbers that are not finite; {remedy}")
    return {clip_id: row.clone() for clip_id, row in zip(clip_ids, stored, strict=True)}
