"""Workspace: where a data set is worked on. Its own folder, or, for one at an address, a local copy fetched and sent.

    workspace = Workspace("s3://bucket/data")
    with workspace.film("ponyo-01234567") as folder:
        ... work on the folder ...

The copy lies in the user's cache folder, or below ANIMEGAMER_WORK; kept between builds, it saves fetching again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from platformdirs import user_cache_path

from pipeline.core.atomic import held
from pipeline.core.progress import Progress, silent
from pipeline.core.store import Dataset, FilmFolder
from pipeline.remote.film_cache import fetch_folder
from pipeline.remote.mirror import Mirror
from pipeline.remote.objects import RemoteError, checked_remote, is_address


class Workspace:
    """The data set that `--out` names, on this machine.

    Raises:
        RemoteError: the address cannot be used.
    """

    def __init__(self, out: str) -> None:
        self._mirror = Mirror(out, _copy_of(checked_remote(out))) if is_address(out) else None
        self.name = out
        self.dataset = Dataset(self._mirror.local if self._mirror else Path(out))

    @property
    def is_copy(self) -> bool:
        """True if the data set lies at an address, and here only a copy of it."""
        return self._mirror is not None

    @contextmanager
    def locked(self, purpose: str) -> Iterator[None]:
        """Hold the data set against a second build on this machine while the block lasts.

        Args:
            purpose: shown to a process that finds the lock taken.

        Raises:
            HeldError: another process is at work on it; the message says which.
        """
        with held(self.dataset.root, purpose):
            yield

    def fetch(self, under: str = "", progress: Progress = silent) -> None:
        """Bring the copy up to date with the store; does nothing for a folder.

        Raises:
            RemoteError: the store cannot be reached.
        """
        if self._mirror:
            self._mirror.pull(under, progress)

    def send(self, under: str = "", progress: Progress = silent) -> None:
        """Put what changed into the store, whole objects, those that name others last; does nothing for a folder.

        Raises:
            RemoteError: the store cannot be reached; sending again goes on from there.
        """
        if self._mirror:
            self._mirror.push(under, progress)

    @contextmanager
    def film(self, film_id: str) -> Iterator[FilmFolder]:
        """A film's folder, fetched before the block and sent after it, even if the block fails: with its error.

        Raises:
            RemoteError: the store cannot be reached.
        """
        self.fetch(film_part(film_id))
        try:
            yield self.dataset.folder(film_id)
        except BaseException:
            with suppress(RemoteError):  # what was not sent goes with the next send
                self.send(film_part(film_id))
            raise
        self.send(film_part(film_id))


def film_part(film_id: str) -> str:
    """The part of a data set that belongs to one film, for `fetch` and `send`."""
    return f"films/{film_id}/"


def cast_folder(cast: str) -> Path:
    """Folder of the cast's pictures on this machine; those at an address are fetched.

    Raises:
        RemoteError: the address cannot be used.
    """
    return fetch_folder(cast, _copy_of(checked_remote(cast))) if is_address(cast) else Path(cast)


def absolute(path: str) -> str:
    """The same path from wherever it is read; an address is that already."""
    return path if is_address(path) else str(Path(path).absolute())


def _copy_of(address: str) -> Path:
    """Folder of the local copy of an address: a readable name, and a hash against collisions."""
    home = os.environ.get("ANIMEGAMER_WORK")
    slug = re.sub(r"[^a-z0-9]+", "-", address.lower()).strip("-")[:60]
    folder = Path(home) if home else user_cache_path("animegamer")
    return folder / f"{slug}-{sha256(address.encode()).hexdigest()[:8]}"
