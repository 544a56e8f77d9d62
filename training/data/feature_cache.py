"""Feature cache: outputs of frozen networks for each clip, computed once instead of in every epoch.

    RUN/features/<feature>/<split>/<film_id>-000000.safetensors    one file per shard, one tensor per clip, by clip id
    SHARED/<feature>/<definition>/<shard>.safetensors              the same, named by content

The header of a file holds the shard's hash and the ingredients of the feature (weights of the encoder, size of the
frames, ...). If they change, the file is stale: the error names the changes, and the file is encoded again. Files are
written atomically one by one, so a killed run resumes at the shard it had reached.

In a shared folder both names are hashes: `<definition>` of the feature's ingredients, `<shard>` of the shard's content.
Runs with equal networks and data find each other's files, and never see another run's files as stale. Two runs may fill
the folder at the same time; each skips the shards that the other has finished.

    work = share_out(caches, names, accelerator)                       the same plan in every process
    encoder.make("latents", work["latents"], watch)                    its network is loaded once, if there is work
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from models.config import ModelConfig
from pipeline.core.atomic import replacing, sweep
from pipeline.core.errors import NoRoomError, UserError
from pipeline.core.ingredients import Ingredients, changed, fingerprint
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Record
from training.data.shards import ShardFile
from training.data.turns import Catalog, PackedTurn, RecordedTurn, read_turns

_HEADER = "made_from"
"""Key of the only metadata entry of a file: safetensors writes several entries in varying order."""
VERSION = 1
"""Version of the encoding; increment it when the same clips and networks give other features."""
_ABANDONED_SECONDS = 3600
"""Age of a temporary file that no process writes any more: writing one takes seconds."""


Item = TypeVar("Item", PackedTurn, RecordedTurn)


@dataclass(frozen=True)
class Feature:
    """Definition of a feature: one tensor per clip."""

    name: str
    """Name, and folder in the cache: `latents`, `patches`, `text`, `shot_tokens`, `predictions`."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    """Dtype on disk; see `storage_dtype`."""
    ingredients: Mapping[str, str]
    """Ingredients besides the shard, by the names used in error messages: networks, settings, ingredients of features
    it depends on, and the catalog's fingerprint if it depends on other shards."""

    def bytes_of(self, clips: int) -> int:
        """Return the disk space of this many clips, without headers (about 100 bytes per clip)."""
        return clips * torch.Size(self.shape).numel() * self.dtype.itemsize


class _MadeFrom(Record):
    """Header of a file."""

    version: int = VERSION
    feature: str
    shape: tuple[int, ...]
    dtype: str
    shard: str
    ingredients: dict[str, str]

    def all(self) -> Ingredients:
        """Return all ingredients of a file, by name."""
        return {**self.ingredients, **self.model_dump(exclude={"ingredients"})}

    def definition(self) -> str:
        """Return a hash of all ingredients but the shard."""
        return fingerprint(self.model_dump(exclude={"shard"}))


class FeatureCache:
    """Features of a catalog's turns in one folder."""

    def __init__(self, folder: Path, catalog: Catalog, features: Iterable[Feature], *, shared: bool = False) -> None:
        """Store the arguments; nothing is read yet.

        Args:
            shared: name files by content, because other runs use the folder too.
        """
        self.folder, self.catalog, self.shared = folder, catalog, shared
        self.features = {feature.name: feature for feature in features}
        self._open: dict[tuple[str, str], Any] = {}
        self._hashes = {shard.name: shard.entry.sha256 for shard in catalog.shards}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments only; another process opens the files itself."""
        arguments = (self.folder, self.catalog, tuple(self.features.values()))
        return partial(FeatureCache, shared=self.shared), arguments

    def get(self, name: str, clip_id: str) -> Tensor:
        """Return a feature of a clip in its storage dtype. UserError if the file is missing, stale or damaged."""
        shard = self.catalog.by_id[clip_id].shard
        if (name, shard) not in self._open:
            if fault := self._fault(name, shard):
                raise UserError(f"{self._path(name, shard)} {fault}; fill the cache again")
            self._open[name, shard] = safe_open(self._path(name, shard), "pt")
        tensor: Tensor = self._open[name, shard].get_tensor(clip_id)
        return tensor.clone()  # safetensors returns a view of the mapped file

    def faults(self, name: str) -> dict[str, str]:
        """Return the faults of unusable files by shard, such as `is stale: autoencoder changed`."""
        faults = {shard.name: self._fault(name, shard.name) for shard in self.catalog.shards}
        return {shard: fault for shard, fault in faults.items() if fault}

    def bytes_to_make(self, name: str) -> int:
        """Return the disk space of a feature's missing and stale files."""
        clips = sum(len(self.catalog.by_shard[shard]) for shard in self.faults(name))
        return self.features[name].bytes_of(clips)

    def bytes_to_replace(self, name: str) -> int:
        """Return the size of a feature's stale files, which new ones will replace."""
        paths = [self._path(name, shard) for shard in self.faults(name)]
        return sum(path.stat().st_size for path in paths if path.exists())

    def fill_from_videos(
        self,
        name: str,
        encode: Callable[[Sequence[PackedTurn]], Tensor],
        *,
        batch_size: int,
        shards: Iterable[ShardFile] | None = None,
        progress: Progress = silent,
    ) -> int:
        """Encode the missing and stale files of a feature that is computed from videos.

        Args:
            encode: encoder; returns one row of the feature's shape for each turn, on any device.
            batch_size: turns per call of `encode`; fewer at the end of a shard.
            shards: shards of this process; all by default.

        Returns:
            Number of clips encoded.

        Raises:
            UserError: a shard or a clip cannot be read, or the encoder returned another shape or numbers that are not
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
        """Encode the missing and stale files of a feature that is computed from texts or other features."""
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
            raise UserError(f"{name}: batch_size is {batch_size}, but must be 1 or more")
        # 1. Find the shards to encode, and remove what a killed run has left half-written.
        pending = [
            shard for shard in (self.catalog.shards if shards is None else shards) if self._fault(name, shard.name)
        ]
        sweep(self.folder / name, older_seconds=_ABANDONED_SECONDS)
        done, total = 0, sum(shard.entry.samples for shard in pending)
        # 2. Encode one shard after the other, and write its file at once: a kill costs one shard.
        for shard in pending:
            if not self._fault(name, shard.name):  # another run has encoded it meanwhile
                total -= shard.entry.samples
                continue
            tensors: dict[str, Tensor] = {}
            items = iter(items_of(shard))
            while batch := list(islice(items, batch_size)):
                tensors |= _rows(self.features[name], [item.clip_id for item in batch], encode(batch))
                done += len(batch)
                progress(done, total)
            self._write(name, shard.name, tensors)
        return done

    def _write(self, name: str, shard: str, tensors: Mapping[str, Tensor]) -> None:
        """Write a file under a temporary name, and rename it into place."""
        with replacing(self._path(name, shard)) as temporary:
            header = {_HEADER: self._made_from(name, shard).model_dump_json()}
            temporary.write_bytes(save(dict(tensors), metadata=header))
        self._open.pop((name, shard), None)

    def _path(self, name: str, shard: str) -> Path:
        if not self.shared:
            return self.folder / name / f"{shard.removesuffix('.tar')}.safetensors"
        return self.folder / name / self._made_from(name, shard).definition() / f"{self._hashes[shard]}.safetensors"

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
        """Return the reason why the file of a shard is unusable; None if it is valid."""
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
    """Return the dtype on disk: float16 at full size (about 50 GB for 20,000 clips), otherwise float32."""
    return torch.float16 if config.size == "full" else torch.float32


def _rows(feature: Feature, clip_ids: Sequence[str], rows: Tensor) -> dict[str, Tensor]:
    """Split a batch into one copied tensor per clip. UserError for a wrong shape or non-finite numbers."""
    if rows.shape != (len(clip_ids), *feature.shape):
        wanted = (len(clip_ids), *feature.shape)
        raise UserError(f"{feature.name}: the encoder returned shape {tuple(rows.shape)}, expected {wanted}")
    stored = rows.detach().to("cpu", feature.dtype)
    for clip_id, row in zip(clip_ids, stored, strict=True):
        if not row.isfinite().all():
            remedy = "look at the clip, or compute in a wider precision"
            raise UserError(f"{feature.name} of clip {clip_id} has numbers that are not finite; {remedy}")
    return {clip_id: row.clone() for clip_id, row in zip(clip_ids, stored, strict=True)}


Work = Mapping[FeatureCache, Sequence[ShardFile]]
"""Shards of each cache that a process has to encode."""


def share_out(caches: Sequence[FeatureCache], names: Sequence[str], accelerator: Accelerator) -> dict[str, Work]:
    """Return this process's share of the missing and stale shards, by feature. Collective call.

    Only the main process looks for missing files: a later process could see files that others have already written.
    """
    plan: list[dict[str, list[list[str]]] | None] = [None]
    if accelerator.is_main_process:
        plan = [{name: [sorted(cache.faults(name)) for cache in caches] for name in names}]
    (missing,) = broadcast_object_list(plan)
    assert missing is not None
    rank, processes = accelerator.process_index, accelerator.num_processes
    return {name: share_of(caches, missing[name], rank, processes) for name in names}


def share_of(caches: Sequence[FeatureCache], missing: Sequence[Sequence[str]], rank: int, processes: int) -> Work:
    """Return every n-th of the missing shards, the largest first, so that processes get similar numbers of clips."""
    pairs = [
        (cache, shard)
        for cache, names in zip(caches, missing, strict=True)
        for shard in cache.catalog.shards
        if shard.name in set(names)
    ]
    pairs.sort(key=lambda pair: pair[1].entry.samples, reverse=True)
    return {cache: [shard for owner, shard in pairs[rank::processes] if owner is cache] for cache in caches}


def space_needed(caches: Sequence[FeatureCache], names: Sequence[str], later_bytes: int = 0) -> str:
    """Return a line about the disk space that filling takes; empty if there is nothing to encode.

    Args:
        caches: caches of one folder.
        later_bytes: space of features that later phases will add.

    Raises:
        NoRoomError: the disk of the folder has less space.
    """
    by_name = {name: sum(cache.bytes_to_make(name) for cache in caches) for name in names}
    if not any(by_name.values()):
        return ""
    folder, needed = caches[0].folder, sum(by_name.values())
    replaced = sum(cache.bytes_to_replace(name) for cache in caches for name in names)
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    parts = ", ".join(f"{name} {readable(size)}" for name, size in by_name.items() if size)
    if needed - replaced > free:
        raise NoRoomError(
            f"{folder} needs {readable(needed)} for features ({parts}), but only {readable(free)} are free: make room, "
            "or name a folder on another disk with --features"
        )
    later = f"; later phases add {readable(later_bytes)}" if later_bytes else ""
    return f"features to make: {readable(needed)} ({parts}), {readable(free)} are free in {folder}{later}"


def readable(size: int) -> str:
    """Return a number of bytes in MB or GB."""
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"
