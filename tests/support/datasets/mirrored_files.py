"""Small datasets of plain bytes, on this machine and in an object store, for tests of transfers between them.

    here = pushed(store, tmp_path / "here")
    there = pulled(store, tmp_path / "there")
    assert files_in(there.local) == files_in(here.local) == SMALL_SET

`store` is the fixture of `tests/pipeline/conftest.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pipeline.remote.mirror import Mirror
from tests.support.servers.object_store import ObjectStore

Files = dict[str, bytes]
FILM = "films/film-01234567"
SMALL_SET = {
    "dataset.json": b"{}",
    f"{FILM}/film.json": b"{}",
    f"{FILM}/crop.json": b'{"files": {"crop.parquet": 4}}',
    f"{FILM}/crop.parquet": b"crop",
    f"{FILM}/clips/film-01234567-000000000.mp4": b"a clip",
    "shards/index.json": b"{}",
    "README.md": b"a card",
}


def write(root: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a folder, by their names relative to it; return the folder."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def files_in(root: Path) -> Files:
    """Content of the files below a folder, without locks, caches and temporary names."""
    names = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if not re.search(r"(^|/)\.", name)}


def pushed(store: ObjectStore, folder: Path, files: Mapping[str, bytes] = SMALL_SET) -> Mirror:
    """Mirror with its files pushed to the store, and the store's request log cleared."""
    mirror = Mirror(store.address("data"), write(folder, files))
    mirror.push()
    store.requests.clear()
    return mirror


def pulled(store: ObjectStore, folder: Path) -> Mirror:
    """Mirror of the same dataset on another machine."""
    mirror = Mirror(store.address("data"), folder)
    mirror.pull()
    store.requests.clear()
    return mirror
