"""Published shards as files: where they are, fetched, checked against the index, and taken apart with webdataset.

`shards/index.json` says which shards there are. They are read from a data set folder or from wherever fsspec reaches
(http, s3, gs, hf, ...). A shard is fetched whole and compared with the size and hash that the index gives before
anything in it is believed: a damaged one gives no sample at all, and a slow reader holds no connection open.
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
from pipeline.core.records import faults_of
from pipeline.publish.samples import Split
from pipeline.publish.shard_tar import has_oversized_member
from pipeline.publish.shards import Index, Shard, file_sha256
from pipeline.remote.objects import NotThereError, Remote, RemoteError

_WAITS_SECONDS = (0.5, 2.0, 8.0)


@dataclass(frozen=True)
class ShardFile:
    """One shard of a data set: where it lies, and its entry in the index."""

    address: str
    entry: Shard

    @property
    def name(self) -> str:
        """Its path below `shards/`, the same wherever the data set lies."""
        return self.entry.name


def open_index(source: str | Path) -> Index:
    """What is said of a whole data set: its shards, motion levels and their values, counts.

    Args:
        source: a data set folder, or the address of one, such as `https://host/set` or `s3://bucket/set`.

    Raises:
        UserError: there is no index, or it is damaged.
    """
    place = f"{_root(source)}/index.json"
    with fetched(place) as path:
        try:
            return Index.model_validate_json(path.read_bytes())
        except ValidationError as error:
            remedy = "build the data set again with this version"
            raise UserError(f"{place} is damaged, or of another version ({faults_of(error)}); {remedy}") from error


def open_shards(source: str | Path, split: Split) -> list[ShardFile]:
    """The shards of a split: film after film, those of a film in time order.

    Args:
        source: as for `open_index`.
        split: `train` or `val`.

    Raises:
        UserError: there is no index, it is damaged, or the split is empty.
    """
    entries = [entry for entry in open_index(source).shards if entry.split == split]
    if not entries:
        raise UserError(f"{source} has no shard of the split {split}; build with another `shards.val_share`")
    return [ShardFile(f"{_root(source)}/{entry.name}", entry) for entry in entries]


def unpack(shard: ShardFile, kinds: Collection[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Key and members of each sample of a shard, in the order they lie there.

    Args:
        shard: from `open_shards`.
        kinds: the extensions of the members that are wanted; every sample has them all.

    Raises:
        UserError: the shard cannot be fetched, is not what the index lists, or a sample lacks a member.
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
    """A file of a data set on the local disk; what comes from elsewhere is gone afterwards.

    Raises:
        UserError: it is not there, or cannot be fetched even after some tries.
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
            remote.get("", path)
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
        raise UserError(f"{shard.address} has {size} bytes, {entry.bytes} by the index: it is not whole; {remedy}")
    if file_sha256(path) != entry.sha256:
        raise UserError(f"{shard.address} is damaged: its hash is not the index's; {remedy}")


def _samples(shard: ShardFile, path: Path, kinds: Collection[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """What webdataset makes of the tar; members of other kinds are passed over unread."""
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
                reason = str(error.args[0]).split(" @ ")[0]  # where webdataset puts the name of its stream
                remedy = "build the data set again"
                raise UserError(f"{shard.address} is no proper shard {last}: {reason}; {remedy}") from error
            if sample is None:
                return
            last = f"after clip {sample['__key__']}"
            yield sample["__key__"], {kind: sample[kind] for kind in kinds if kind in sample}
