"""Content hashes, remembered by size, modification time and inode: what was hashed once is not read again.

    hashes = Hashes(folder / ".cache" / "hashes.json")
    hashes.of(film)
    hashes.save()

A file that is renamed or moved keeps its hash; one that is touched is read again and found to be the same. The cache
is only that: lost or damaged, everything is read once more.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipeline.core.atomic import write_json
from pipeline.core.progress import Progress, silent
from pipeline.core.records import RecordError

BLOCK_BYTES = 1 << 22
FILM_HASHES = Path(".cache", "content-hashes.json")
"""What is remembered of films, in the data set's folder."""


class Hashes:
    """SHA-256 by what the file system says of a file.

    Args:
        cache: JSON file with what is remembered.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._known = _load(cache)
        self._news: dict[str, str] = {}

    def get(self, identity: str) -> str | None:
        """The hash remembered for an identity, whatever gave it: `of` for a file, a store's own for an object."""
        return self._known.get(identity)

    def remember(self, identity: str, sha256: str) -> None:
        """Keep a hash; `save` writes it down."""
        self._known[identity] = self._news[identity] = sha256

    def of(self, path: Path, progress: Progress = silent) -> str:
        """The hash of a file's content, read only if it is not remembered.

        Args:
            path: the file.
            progress: called with bytes read and bytes in all.

        Raises:
            OSError: the file cannot be read.
        """
        identity = _identity(path.stat())
        if (known := self.get(identity)) is None:
            known = _read(path, progress)
            self.remember(identity, known)
        return known

    def save(self) -> None:
        """Write down what is new, beside what others have written down since."""
        if self._news:
            write_json(self._cache, _load(self._cache) | self._news)
            self._news = {}


def film_hash(path: Path, hashes: Hashes, progress: Progress = silent) -> str:
    """The hash of a film file, which the user named.

    Raises:
        RecordError: it cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RecordError(path.name, "is a folder or a device, not a film file")
        return hashes.of(path, progress)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise RecordError(path.name, f"cannot be read: {error}") from error


def _identity(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


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
