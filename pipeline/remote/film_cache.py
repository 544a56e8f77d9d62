"""Local cache of films and cast folders at addresses; a rerun fetches only the objects that changed.

    film = fetch_film("s3://bucket/films/ponyo.mkv", cache)
    cast = fetch_folder("s3://bucket/cast", cache)

The plan fetches a film to identify it by content (`plan/identify.py`), and so does a stage that reads it
(`local_film`). The copy serves all stages, and is deleted when the film is finished (`delete_local_film`). The next
fetch undoes local changes to cached files.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from pydantic import ValidationError

from pipeline.core.atomic import sweep, write_json
from pipeline.core.hashes import FILM_HASHES, Hashes, film_hash
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Film, RecordError
from pipeline.core.store import FilmFolder, StoreError
from pipeline.remote.mirror import Mirror, Note, copy_of, note_of
from pipeline.remote.objects import Remote, RemoteError, checked_remote, is_address, is_file_name, is_hidden

FETCHED_FILMS = Path(".cache", "films")
"""Cache of films from addresses while they are processed, relative to the dataset's folder."""
_NOTE = ".fetched.json"


@contextmanager
def local_film(folder: FilmFolder, progress: Progress) -> Iterator[FilmFolder]:
    """Yield the folder with its film's source as a file on this machine; a film at an address is fetched first.

    Raises:
        RecordError: it cannot be fetched, or its content is not as planned before or after the block.
    """
    film, root = folder.film, folder.path.parents[1]
    hashes = Hashes(root / FILM_HASHES)
    try:
        source = film_file(film.source, root, progress)
    except RemoteError as error:
        raise RecordError(folder.film_id, str(error)) from error
    _check_unchanged(source, film, hashes, progress)
    hashes.save()
    yield FilmFolder(folder.path, source)
    _check_unchanged(source, film, hashes, progress)


def _check_unchanged(source: Path, film: Film, hashes: Hashes, progress: Progress) -> None:
    try:
        sha256 = film_hash(source, hashes, progress)
    except RecordError as error:
        raise RecordError(film.film_id, error.reason) from error
    if sha256 != film.sha256:
        raise RecordError(film.film_id, "has changed since the build was planned; run the same command again")


def delete_local_film(folder: FilmFolder) -> None:
    """Remove this machine's copies of a film and its subtitles from addresses once it is processed."""
    with suppress(StoreError):  # the folder, which holds the film's address, has been removed
        film = folder.film
        for source in (film.source, *(file.source for file in film.subtitle_files)):
            delete_local_copy(source, folder.path.parents[1])


def delete_local_copy(source: str, root: Path) -> None:
    """Remove the local copy of an address, if there is one; a path has none."""
    if is_address(source):
        shutil.rmtree(_home(source, root / FETCHED_FILMS), ignore_errors=True)


def copied_bytes(source: str, root: Path) -> int:
    """Size of the local copy of a film from an address; 0 for a path."""
    if not is_address(source):
        return 0
    return sum(file.stat().st_size for file in _home(source, root / FETCHED_FILMS).glob("*"))


def film_file(source: str, root: Path, progress: Progress) -> Path:
    """The local file of a film; from an address, it is fetched into the dataset's cache. Raises RemoteError."""
    return fetch_film(source, root / FETCHED_FILMS, progress) if is_address(source) else Path(source).absolute()


def fetch_film(address: str, cache: Path, progress: Progress = silent) -> Path:
    """Fetch a film to a local file of the same name, unless the object is the one fetched last. Raises RemoteError."""
    remote = Remote(address)
    found = remote.look()
    home = _home(remote.address, cache)
    path, note = home / _file_name(remote.address), home / _NOTE
    if path.is_file() and _read_note(note) == note_of(found, path):
        return path
    sweep(home)
    remote.fetch_file(path, found, progress)
    write_json(note, note_of(found, path).model_dump(mode="json"))
    return path


def film_identity(address: str) -> str | None:
    """The film's address, size and version mark in the store, which identify its content; None without a mark.

    Raises:
        RemoteError: there is no such object, or the store cannot be reached.
    """
    remote = Remote(address)
    found = remote.look()
    return f"{remote.address} {found.identity}" if found.mark else None


def film_content(source: str, root: Path, hashes: Hashes, progress: Progress) -> str:
    """The hash of a film's content; an object is fetched once, then its hash is cached by its version mark.

    Raises:
        RecordError: the file cannot be read.
        RemoteError: there is no such object, or it cannot be fetched.
    """
    identity = film_identity(source) if is_address(source) else None
    if identity and (known := hashes.get(identity)):
        return known
    sha256 = film_hash(film_file(source, root, progress), hashes, progress)
    if identity:
        hashes.remember(identity, sha256)
    return sha256


def local_folder(source: str) -> Path:
    """The local folder of a path or address, such as a cast; from an address, it is fetched. Raises RemoteError."""
    return fetch_folder(source, copy_of(checked_remote(source))) if is_address(source) else Path(source)


def fetch_folder(address: str, cache: Path) -> Path:
    """Update and return the local copy of a folder of small files, such as a cast's pictures. Raises RemoteError."""
    mirror = Mirror(address, _home(address, cache))
    mirror.revert()
    mirror.pull()
    if not any(not is_hidden(path.name) for path in mirror.local.iterdir()):
        raise RemoteError(f"{mirror.remote.address}: nothing there; check the spelling")
    return mirror.local


def _home(address: str, cache: Path) -> Path:
    """Cache folder of an address."""
    return cache / hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:16]


def _read_note(path: Path) -> Note | None:
    try:
        return Note.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):  # missing or damaged: the film is fetched again
        return None


def _file_name(address: str) -> str:
    last = address.rpartition("/")[2]
    name = unquote(last) if address.startswith("http") else last
    if not is_file_name(name):
        raise RemoteError(f"{address}: no file can have this name; name a film")
    return name
