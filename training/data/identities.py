"""Identities of networks, as ingredients of features: the commit of a frozen base, or the hash of its files.

A base in a folder may have gigabytes. `remembered` keeps the hashes of its files in the folder of the features, by
size, modification time and inode, so that no phase, process or other run reads the weights for this again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from models.config import Base
from models.hub import pinned
from pipeline.core.errors import disk_errors
from pipeline.core.hashes import Hashes
from pipeline.publish.shards import file_sha256

_COMMIT = re.compile("[0-9a-f]{40}")
Sha256 = Callable[[Path], str]


def made_by_base(name: str, base: Base, sha256: Sha256 = file_sha256) -> dict[str, str]:
    """Return a frozen base as an ingredient: its commit on the hub, or the hash of all files in its folder.

    Args:
        name: of the ingredient.
        base: location of the base.
        sha256: hash of a file; `remembered` gives one that reads a file once.

    Raises:
        UserError: there is no such base, or it is on the hub and its commit is neither configured nor cached.
    """
    place = base if _COMMIT.fullmatch(base.revision or "") else pinned(base)
    subfolders = sorted({place.subfolder, place.tokenizer_subfolder or place.subfolder})
    if not Path(place.id).is_dir():
        return {name: f"{place.id}@{place.revision} {' '.join(subfolders)}".rstrip()}
    folders = [Path(place.id) / subfolder for subfolder in subfolders]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return made_by_files(name, *files, sha256=sha256)


def made_by_files(name: str, *paths: Path, sha256: Sha256 = file_sha256) -> dict[str, str]:
    """Return weight files as an ingredient: the hash of their names and contents."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {sha256(path)}\n".encode())
    return {name: digest.hexdigest()}


@contextmanager
def remembered(folder: Path) -> Iterator[Sha256]:
    """Yield a hash of files that remembers them in a folder.

    Raises:
        DiskError: the folder cannot be used.
    """
    with disk_errors(folder):
        hashes = Hashes(folder / ".hashes.json")
    yield hashes.of
    hashes.save()
