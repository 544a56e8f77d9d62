"""Content hashes (SHA-256), cached by size, modification time and inode: a file hashed once is not read again.

    hashes = Hashes(folder / ".cache" / "hashes.json")
    hashes.of(film)
    hashes.save()

A renamed or moved file keeps its hash; a touched file is read again and gives the same hash. If the cache is lost or
damaged, all files are read again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipeline.core.atomic import write_json
from pipeline.core.progress import Progress, silent
from pipeline.core.records import RecordError

BLOCK_BYTES = 1 << 22
FILM_HASHES = Path(".cache", "content-hashes.json")
"""Cache file of film hashes, relative to the dataset's folder."""


class Hashes:
    """SHA-256 of files, cached by file status in the JSON file `cache`."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._known = _load(cache)
        self._updates: dict[str, str] = {}

    def get(self, identity: str) -> str | None:
        """The cached hash for an identity: from `of` for a file, from the object store for an object."""
        return self._known.get(identity)

    def remember(self, identity: str, sha256: str) -> None:
        """Cache a hash; `save` writes it to disk."""
        self._known[identity] = self._updates[identity] = sha256

    def of(self, path: Path, progress: Progress = silent) -> str:
        """The hash of a file's content; the file is read only if the hash is not cached. May raise OSError."""
        status = path.stat()
        identity = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
        if (known := self.get(identity)) is None:
            known = _read(path, progress)
            self.remember(identity, known)
        return known

    def save(self) -> None:
        """Merge the new hashes into the cache file, which other processes may have extended meanwhile."""
        if self._updates:
            write_json(self._cache, _load(self._cache) | self._updates)
            self._updates = {}


def film_hash(path: Path, hashes: Hashes, progress: Progress = silent) -> str:
    """The hash of a film file that the user named. Raises RecordError if it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RecordError(path.name, "is a device, not a film file")
        return hashes.of(path, progress)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise RecordError(path.name, f"cannot be read: {error}") from error


def weights_sha256(path: Path) -> str:
    """The hash of a network's file, which one process reads once. May raise OSError."""
    status = path.stat()
    return _weights_sha256(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _weights_sha256(path: Path, size: int, modified_ns: int) -> str:  # noqa: ARG001 size and time are the cache key
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            progress(file.tell(), total)
    return digest.hexdigest()


def _load(cache: Path) -> dict[str, str]:
    try:
        return TypeAdapter(dict[str, str]).validate_json(cache.read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}
