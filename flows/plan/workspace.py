"""Where a data set is worked on: in its folder, or, if it lies at an address, in a local copy that is fetched and sent.

    place = Place("s3://bucket/data")
    place.fetch("films/")
    ... work on place.dataset ...
    place.send("films/")

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

from pipeline.core.progress import Progress, silent
from pipeline.core.store import Dataset, FilmFolder
from pipeline.remote.film_cache import fetch_folder
from pipeline.remote.mirror import Mirror
from pipeline.remote.objects import RemoteError, checked_remote, is_address


class Place:
    """A data set by what `--out` said of it.

    Raises:
        RemoteError: the address cannot be used.
    """

    def __init__(self, out: str) -> None:
        self._mirror = Mirror(out, _copy_of(checked_remote(out))) if is_address(out) else None
        self.name = out
        self.dataset = Dataset(self._mirror.local if self._mirror else Path(out))

    @property
    def is_copy(self) -> bool:
        """Whether the data set lies at an address, and here only a copy of it."""
        return self._mirror is not None

    def fetch(self, under: str = "", progress: Progress = silent) -> None:
        """Bring the copy up to date with the store; nothing is to be done for a folder.

        Raises:
            RemoteError: the store cannot be reached.
        """
        if self._mirror:
            self._mirror.pull(under, progress)

    def send(self, under: str = "", progress: Progress = silent) -> None:
        """Put what changed into the store, whole objects, those that speak of others last; a folder needs nothing.

        Raises:
            RemoteError: the store cannot be reached; sending again goes on from there.
        """
        if self._mirror:
            self._mirror.push(under, progress)


@contextmanager
def film_at(out: str, film_id: str) -> Iterator[FilmFolder]:
    """A film's folder, brought up to date before the block and sent after it, even if the block fails: with its error.

    Raises:
        RemoteError: the store cannot be reached.
    """
    place, under = Place(out), f"films/{film_id}/"
    place.fetch(under)
    try:
        yield place.dataset.folder(film_id)
    except BaseException:
        with suppress(RemoteError):  # what was not sent goes with the next send
            place.send(under)
        raise
    place.send(under)


def cast_folder(cast: str) -> Path:
    """Where the cast's pictures lie on this machine; those at an address are fetched.

    Raises:
        RemoteError: the address cannot be used.
    """
    return fetch_folder(cast, _copy_of(checked_remote(cast))) if is_address(cast) else Path(cast)


def absolute(place: str) -> str:
    """The same path from wherever it is read; an address is that already."""
    return place if is_address(place) else str(Path(place).absolute())


def _copy_of(address: str) -> Path:
    """The folder for the copy of what lies at an address: a readable name, and a hash that tells it from others."""
    home = os.environ.get("ANIMEGAMER_WORK")
    slug = re.sub(r"[^a-z0-9]+", "-", address.lower()).strip("-")[:60]
    folder = Path(home) if home else user_cache_path("animegamer")
    return folder / f"{slug}-{sha256(address.encode()).hexdigest()[:8]}"
