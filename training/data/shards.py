"""Shard reader: published shards located by their index, fetched, verified, and unpacked with webdataset.

`shards/index.json` lists the shards. They are read from a data set folder or any fsspec address (http, s3, gs, hf,
...). A shard is fetched as a whole and its size and hash are compared with the index before it is unpacked: a damaged
shard yields no sample, and a slow consumer keeps no connection open.
"""

from __future__ import annotations

import tarfile
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from webdataset.tariterators import group_by_keys, tar_file_expander

from pipeline.core.errors import UserError
from pipeline.core.records import SCHEMA_VERSION, faults_of
from pipeline.publish.shard_tar import has_oversized_member
from pipeline.publish.shards import Index, Shard, file_sha256
from pipeline.publish.splits import Split
from pipeline.remote.objects import NotThereError, Remote, RemoteError

_WAITS_SECONDS = (0.5, 2.0, 8.0)


@dataclass(frozen=True)
class ShardFile:
    """Shard of a data set: its address, and its entry in the index."""

    address: str
    entry: Shard

    @property
    def name(self) -> str:
        """Path below `shards/`, independent of the data set's location."""
        return self.entry.name


def open_index(source: str | Path) -> Index:
    """Read the index of a data set: its shards, motion levels and their values, counts.

    Args:
        source: folder or address of a data set, such as `https://host/set` or `s3://bucket/set`.

    Raises:
        UserError: the index is missing or damaged.
    """
    place = f"{_root(source)}/index.json"
    with fetched(place) as path:
        try:
            return Index.model_validate_json(path.read_bytes())
        except ValidationError as error:
            if any(fault["loc"] == ("schema",) and isinstance(fault["input"], int) for fault in error.errors()):
                remedy = f"this version reads schemas 1 to {SCHEMA_VERSION}: train with the version that built it"
                raise UserError(f"{place} is of another schema; {remedy}, or build it again with this one") from error
            raise UserError(f"{place} is damaged, {faults_of(error)}; build the data set again") from error


def open_shards(source: str | Path, split: Split) -> list[ShardFile]:
    """Return the shards of a split, grouped by film and in time order within a film.

    Args:
        source: as for `open_index`.
        split: `train` or `val`.

    Raises:
        UserError: the index is missing or damaged, or the split is empty.
    """
    entries = [entry for entry in open_index(source).shards if entry.split == split]
    if not entries:
        raise UserError(f"{source} has no shard of the split {split}; build with another `shards.val_share`")
    return [ShardFile(f"{_root(source)}/{entry.name}", entry) for entry in entries]


def unpack(shard: ShardFile, kinds: Collection[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield key and members of each sample of a shard, in stored order.

    Args:
        shard: from `open_shards`.
        kinds: extensions of the requested members; every sample must have all of them.

    Raises:
        UserError: the shard cannot be fetched, differs from the index, or a sample lacks a member.
    """
    count = 0
    with fetched(shard.address) as path:
        _check(shard, path)
        for key, members in _samples(shard, path, kinds):
            if lacking := sorted(set(kinds) - members.keys()):
                raise UserError(f"{shard.address}: clip {key} lacks its .{lacking[0]}; build the data set again")
            count += 1
            yield key, members
    if count != shard.entry.samples:
        wanted = f"{shard.entry.samples} by the index; build the data set again"
        raise UserError(f"{shard.address} holds {count} samples, {wanted}")


@contextmanager
def fetched(address: str) -> Iterator[Path]:
    """Yield the local path of a data set's file; a remote file is downloaded and removed afterwards.

    Raises:
        UserError: the file does not exist, or cannot be fetched after several attempts.
    """
    if "://" not in address:
        if not (path := Path(address)).is_file():
            raise UserError(f"{address}: no such file; name a data set folder that `animegamer build` has finished")
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="animegamer-") as folder:
        path = Path(folder) / "file"
        _fetch(address, path)
        yield path


def _root(source: str | Path) -> str:
    return f"{str(source).rstrip('/')}/shards"


def _fetch(address: str, path: Path) -> None:
    remote = Remote(address)
    for wait in (*_WAITS_SECONDS, None):
        try:
            remote.fetch_file(path)
            return
        except NotThereError as error:
            raise UserError(f"{address}: no such file; name the address of a whole data set") from error
        except RemoteError:
            if wait is None:
                raise
            time.sleep(wait)


def _check(shard: ShardFile, path: Path) -> None:
    size, entry = path.stat().st_size, shard.entry
    remedy = "copy the shard again, or build the data set again"
    if size != entry.bytes:
        raise UserError(
            f"{shard.address} has {size} bytes, {entry.bytes} by the index: it is truncated or replaced; {remedy}"
        )
    if file_sha256(path) != entry.sha256:
        raise UserError(f"{shard.address} is damaged: its hash is not the index's; {remedy}")


def _samples(shard: ShardFile, path: Path, kinds: Collection[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield the samples of the tar with webdataset; members of other kinds are skipped unread."""
    if has_oversized_member(path):
        raise UserError(f"{shard.address} has a member that claims more bytes than the file holds: do not use it")
    last = "at its start"
    with path.open("rb") as file:
        source = [{"url": shard.address, "stream": file}]
        members = tar_file_expander(source, select_files=lambda name: name.rpartition(".")[2] in kinds)
        samples = group_by_keys(members)
        while True:
            try:
                sample = next(samples, None)
            except (tarfile.TarError, ValueError, OSError) as error:
                reason = str(error.args[0]).split(" @ ")[0]  # webdataset appends the name of its stream after it
                remedy = "build the data set again"
                raise UserError(f"{shard.address} is not a valid shard {last}: {reason}; {remedy}") from error
            if sample is None:
                return
            last = f"after clip {sample['__key__']}"
            yield sample["__key__"], {kind: sample[kind] for kind in kinds if kind in sample}
