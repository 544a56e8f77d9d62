"""Mirror of a dataset at an address: a local folder, pulled from the store before the work and pushed after it.

    mirror = Mirror("s3://bucket/data")
    mirror.pull("films/ponyo-01234567/")
    ...
    mirror.push("films/ponyo-01234567/")

Only differences are transferred. After each transfer, size and modification time of every local file and the identity
of its object are stored in `.cache/mirror.json`; a file or object that differs from its note has changed. After a kill
only the unfinished transfers are repeated.

**Last push wins.** If a part of the dataset (a film's folder, `shards/`, a file at the top) has changed in the store
since the last note, `pull` replaces the whole part and discards its local changes. So no stage's record is combined
with another run's tables. If a part is unchanged in the store, local changes and removals are kept for the next push,
also after an interrupted push. Local files unknown to the store are always kept.

Delete the folder as a whole or not at all: a missing file counts as removed, and the next push removes its object.
Only one process at a time may pull, work and push, so the caller holds a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from platformdirs import user_cache_path
from pydantic import Field, ValidationError

from pipeline.core.atomic import lock_file, write_json
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Record
from pipeline.remote.objects import Remote, RemoteError, RemoteObject, is_hidden

_STAGE_RECORD = r"films/[^/]+/(?!(film|failure)\.json)[^/]+\.json"
_ORDER = (
    r".+",  # clips, replies, tables, film.json, failure.json
    _STAGE_RECORD,  # declares its tables and clips complete
    r"shards/.+\.tar",
    r"shards/index\.json",  # names the shards
    r"[^/]+",  # README.md, report.html, published.json: refer to the shards
    r"dataset\.json",  # names the films
)
"""Order of uploads: files come after the files that they refer to. The last pattern that matches a name counts."""


class Note(Record):
    """State of a local file and its object when they were last the same."""

    identity: str | None
    """Identity of the object; None during its upload, which may be interrupted and leave the old or the new one."""
    bytes: int
    mtime_ns: int


class Notes(Record):
    """`.cache/mirror.json`: the notes of all files of a mirror."""

    address: str
    files: dict[str, Note] = Field(default_factory=dict)


class Mirror:
    """The local copy of a dataset at an address."""

    def __init__(self, address: str, local: Path | None = None) -> None:
        """Create the mirror without a request to the store, by default in the folder that `copy_of` names.

        Raises:
            RemoteError: the address is rejected, the package for its protocol is missing, or the folder is the copy of
                another address.
        """
        self.remote = Remote(address)
        self.local = local or copy_of(self.remote.address)
        self._path = self.local / ".cache" / "mirror.json"
        self._read()

    def pull(
        self, under: str = "", progress: Progress = silent, wanted: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Update this folder from the store, by the rule above.

        Args:
            under: only this folder or file of the dataset, such as `films/<film_id>/`.
            progress: called with (bytes fetched, bytes in total).
            wanted: filter of file names; all other files do not change.

        Raises:
            RemoteError: the store cannot be reached, or an object's name leads out of the folder. Some files may have
                changed; the next pull continues from there.
        """
        there = {name: found for name, found in self.remote.find(under).items() if wanted(name)}
        notes = {name: note for name, note in self._noted(under).items() if wanted(name)}
        here = self._files(under)
        # 1. Keep local changes and removals in the parts of the dataset that nobody has changed in the store.
        same = {name for name, note in notes.items() if _is_same(here.get(name), note)}
        moved = _moved(there, notes)
        kept = {name for name in notes.keys() - same if _part(name) not in moved}
        # 2. Skip the files that are unchanged on both sides.
        same = {name for name in same if name in there and there[name].identity == notes[name].identity}
        # 3. For all others the store wins: fetch what it has, delete what it has no longer.
        fetched = {name: found for name, found in there.items() if name not in kept | same}
        gone = notes.keys() - there.keys() - kept
        # 4. Transfer before the notes change: after a kill in between, the next pull repeats it.
        self.remote.fetch(fetched, self.local, progress)
        for name in gone:
            self._drop(name)
        if fetched or gone:
            self._note({name: note_of(found, self.local / name) for name, found in fetched.items()}, forget=gone)

    def push(self, under: str = "", progress: Progress = silent) -> None:
        """Upload changed files and remove the objects of removed files. Without changes, no request is made.

        The store may be read meanwhile: it shows whole files only, each after the files that it refers to (`_ORDER`).
        The records of stages whose results change are removed first, and files that are no longer referred to last.
        Only a shard that keeps its name and changes its content differs from the old index for a moment; readers
        compare size and SHA-256 with the index and reject such a shard (`training/data/shards.py`).

        Args:
            under: only this folder or file of the dataset.
            progress: called with (bytes uploaded, bytes in total).

        Raises:
            RemoteError: the store cannot be reached; the next push continues from there.
        """
        here, notes = self._files(under), self._noted(under)
        changed = {name: note for name, note in here.items() if not _is_same(note, notes.get(name))}
        gone = notes.keys() - here.keys()
        if not changed and not gone:
            return
        records = [name for name in changed.keys() | gone if re.fullmatch(_STAGE_RECORD, name)]
        under_way = {name: notes[name].model_copy(update={"identity": None}) for name in gone}
        self._note(changed | under_way)
        self.remote.remove([records])
        self.remote.send(_ranked(changed), self.local, progress)
        self.remote.remove(reversed(_ranked(gone)))
        there = self.remote.find(under)
        whole = {name for name, note in changed.items() if name in there and there[name].bytes == note.bytes}
        self._note({n: changed[n].model_copy(update={"identity": there[n].identity}) for n in whole}, forget=gone)

    def revert(self) -> None:
        """Discard local changes and removals: the next pull fetches those files again."""
        here, notes = self._files(""), self._noted("")
        self._note({}, forget={name for name, note in notes.items() if not _is_same(here.get(name), note)})

    def _drop(self, name: str) -> None:
        (self.local / name).unlink(missing_ok=True)
        with suppress(OSError):  # the first folder that is not empty, or already removed
            for folder in Path(name).parents[:-1]:
                (self.local / folder).rmdir()

    def _files(self, under: str) -> dict[str, Note]:
        """Notes of the local files as they are now, without the identity of an object."""
        base = self.local / under
        paths = [base] if base.is_file() else base.rglob("*")
        names = {path.relative_to(self.local).as_posix(): path for path in paths}
        return {name: note_of(None, path) for name, path in names.items() if not is_hidden(name) and path.is_file()}

    def _noted(self, under: str) -> dict[str, Note]:
        inside = under.rstrip("/") + "/" if under else ""
        notes = self._read().files
        return {name: note for name, note in notes.items() if f"{name}/".startswith(inside)}

    def _note(self, updates: Mapping[str, Note], forget: Collection[str] = ()) -> None:
        forgotten = set(forget)
        with self._locked():
            files = {name: note for name, note in self._read().files.items() if name not in forgotten} | dict(updates)
            write_json(self._path, Notes(address=self.remote.address, files=files).model_dump(mode="json"))

    def _read(self) -> Notes:
        try:
            notes = Notes.model_validate_json(self._path.read_bytes())
        except (FileNotFoundError, ValidationError):  # missing or damaged: everything is compared again
            return Notes(address=self.remote.address)
        if notes.address != self.remote.address:
            raise RemoteError(f"{self.local} is the copy of {notes.address}; take another folder, or delete this one")
        return notes

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the notes, which threads and processes share while they process different films of one mirror."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as file:
            lock_file(file, fcntl.LOCK_EX, self.local)
            yield


def copy_of(address: str) -> Path:
    """Folder of the local copy of an address, in the user's cache folder or below ANIMEGAMER_WORK."""
    home = os.environ.get("ANIMEGAMER_WORK")
    slug = re.sub(r"[^a-z0-9]+", "-", address.lower()).strip("-")[:60]
    folder = Path(home) if home else user_cache_path("animegamer")
    return folder / f"{slug}-{sha256(address.encode()).hexdigest()[:8]}"


def note_of(found: RemoteObject | None, path: Path) -> Note:
    """Note that a local file and an object are the same now; `found` is None during the upload."""
    status = path.stat()
    identity = found.identity if found else None
    return Note(identity=identity, bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def _moved(there: Mapping[str, RemoteObject], notes: Mapping[str, Note]) -> set[str]:
    """Parts in which the store differs from the notes. An interrupted push counts as having uploaded its objects."""
    noted_there = {name: note.identity for name, note in notes.items()}
    listed = {name: found.identity for name, found in there.items()}
    under_way = {name for name, identity in noted_there.items() if identity is None}
    names = (noted_there.keys() | listed.keys()) - under_way
    return {_part(name) for name in names if noted_there.get(name) != listed.get(name)}


def _is_same(file: Note | None, note: Note | None) -> bool:
    """Return True if the file is unchanged since its note and the identity of its object is known."""
    if file is None or note is None or note.identity is None:
        return False
    return (file.bytes, file.mtime_ns) == (note.bytes, note.mtime_ns)


def _part(name: str) -> str:
    """Part of the dataset, taken from the store as a whole: a film's folder, the shards, or a file at the top."""
    first, *rest = name.split("/")
    return f"{first}/{rest[0]}" if first == "films" and rest else first


def _ranked(names: Iterable[str]) -> list[list[str]]:
    """The names in groups, by the place of each in the order of uploads."""
    groups: list[list[str]] = [[] for _ in _ORDER]
    for name in names:
        groups[max(rank for rank, pattern in enumerate(_ORDER) if re.fullmatch(pattern, name))].append(name)
    return groups
