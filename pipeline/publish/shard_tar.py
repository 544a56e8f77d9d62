"""Tar files of shards: the writer, and a reader for untrusted ones that gives samples in file order and the problems.

The writer's bytes are those of webdataset's `TarWriter`, whose import loads PyTorch where that is installed. The reader
takes one sample at a time into memory, and nothing is written under the name of a member. Training reads with
webdataset, after the headers have been checked here.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

MEMBERS = ("json", "mp4", "txt")
_NAME = re.compile(rf"([a-z0-9_-]+)\.({'|'.join(MEMBERS)})")
_KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.DIRTYPE: "a folder",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
}


@dataclass(frozen=True)
class Packed:
    """One sample of a shard: the bytes of its members by extension."""

    key: str
    members: dict[str, bytes]


def pack(path: Path, samples: Iterable[Packed]) -> None:
    """Write the samples to a tar, the members of each by extension; equal samples give equal bytes."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for sample in samples:
            for extension, content in sorted(sample.members.items()):
                member = tarfile.TarInfo(f"{sample.key}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def unpack(path: Path, problems: list[str]) -> Iterator[Packed]:
    """Yield the samples of a tar; a key that returns after another key is a new sample.

    Args:
        problems: list to which the problems of the tar are appended as they are found.
    """
    for key, group in groupby(_read(path, problems), key=itemgetter(0)):
        members: dict[str, bytes] = {}
        for _, extension, content in group:
            if extension in members:
                problems.append(f"member {key}.{extension} is there twice")
            members.setdefault(extension, content)
        yield Packed(key, members)


def _read(path: Path, problems: list[str]) -> Iterator[tuple[str, str, bytes]]:
    end, file_bytes = 0, path.stat().st_size
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                if problem := _problem(member, file_bytes):
                    problems.append(f"member {member.name[:120]!a} {problem}")
                    continue
                key, extension = member.name.split(".")
                content = tar.extractfile(member)
                yield key, extension, content.read() if content else b""
    except (tarfile.TarError, OSError, ValueError) as error:  # the last: sizes beyond any file, broken sparse maps
        problems.append(f"is not a whole tar file: {error}")
    else:
        problems += _ending(path, end)


def has_oversized_member(path: Path) -> bool:
    """Return True if the header of a member claims more bytes than the tar can hold.

    Call it before a library reads the tar, because that would read as many bytes as are claimed.
    """
    invalid = (tarfile.TarError, OSError, ValueError)  # its reader reports where
    with suppress(*invalid), tarfile.open(path, "r:") as tar:
        return any(_is_oversized(member, path.stat().st_size) for member in tar)
    return False


def _is_oversized(member: tarfile.TarInfo, file_bytes: int) -> bool:
    return member.issparse() or member.size > file_bytes


def _problem(member: tarfile.TarInfo, file_bytes: int) -> str | None:
    if member.name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", member.name):
        return "has a name that leads out of the folder it is unpacked to: do not unpack this file"
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return f"is {_KINDS.get(member.type, 'of an unknown kind')}, not a file"
    if _is_oversized(member, file_bytes):
        return "claims more bytes than the file holds"
    if not _NAME.fullmatch(member.name):
        return f"is not named <a-z0-9_->.{'|'.join(MEMBERS)}"
    return None


def _ending(path: Path, end: int) -> list[str]:
    """Problems at the end: two blocks of zeros are due; `tarfile` silently takes an unreadable header for the end."""
    with path.open("rb") as file:
        file.seek(end)
        rest = file.read(2 * tarfile.RECORDSIZE)
    if len(rest) < 2 * tarfile.BLOCKSIZE:
        return ["is truncated: the end of the tar is missing"]
    return ["holds bytes after its last readable member that are not a tar"] if rest.strip(b"\0") else []
