"""Shard reader: published shards located by their index, fetched, verified, and unpacked with webdataset.

`shards/index.json` lists the shards. They are read from a dataset folder or any fsspec address (http, s3, gs, hf,
...). Each shard is fetched as a whole, and compared with the index by size and hash before it is unpacked. So a damaged
shard yields no sample, and a slow consumer keeps no connection open.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from webdataset.tariterators import group_by_keys, tar_file_expander

from pipeline.core.errors import UserError
from pipeline.publish.samples import Split
from pipeline.publish.shards import Shard, file_sha256, has_oversized_member
from training.data.sources import fetched, open_index, shards_at


@dataclass(frozen=True)
class ShardFile:
    """Shard of a dataset: its address, and its entry in the index."""

    address: str
    entry: Shard

    @property
    def name(self) -> str:
        """Path below `shards/`, independent of the dataset's location."""
        return self.entry.name


def open_shards(source: str | Path, split: Split) -> list[ShardFile]:
    """Return the shards of a split, grouped by film and in time order within a film.

    Raises:
        UserError: the index is missing or damaged, or the split is empty.
    """
    entries = [entry for entry in open_index(source).shards if entry.split == split]
    if not entries:
        raise UserError(f"{source} has no shard of the split {split}; build with another `shards.val_share`")
    return [ShardFile(f"{shards_at(source)}/{entry.name}", entry) for entry in entries]


def unpack(shard: ShardFile, kinds: Collection[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield key and members of each sample of a shard, in stored order.

    Args:
        kinds: extensions of the requested members, which every sample must have.

    Raises:
        UserError: the shard cannot be fetched, differs from the index, or a sample lacks a member.
    """
    count = 0
    with fetched(shard.address) as path:
        _check(shard, path)
        for key, members in _samples(shard, path, kinds):
            if lacking := sorted(set(kinds) - members.keys()):
                raise UserError(f"{shard.address}, clip {key} lacks its .{lacking[0]}; build the dataset again")
            count += 1
            yield key, members
    if count != (wanted := shard.entry.samples):
        raise UserError(f"{shard.address} holds {count} samples, {wanted} by the index; build the dataset again")


def _check(shard: ShardFile, path: Path) -> None:
    size, entry = path.stat().st_size, shard.entry
    remedy = "copy the shard again, or build the dataset again"
    if size != entry.bytes:
        raise UserError(
            f"{shard.address} is truncated or replaced, with {size} bytes, not {entry.bytes} as in the index; {remedy}"
        )
    if file_sha256(path) != entry.sha256:
        raise UserError(f"{shard.address} is damaged, with another hash than in the index; {remedy}")


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
                reason = str(error.args[0]).split(" @ ")[0]  # webdataset appends " @ " and the name of its stream
                fault = f"is not a valid shard {last} ({reason}); build the dataset again"
                raise UserError(f"{shard.address} {fault}") from error
            if sample is None:
                return
            last = f"after clip {sample['__key__']}"
            yield sample["__key__"], {kind: sample[kind] for kind in kinds if kind in sample}
