"""Workspace of a dataset: its own folder, or a local copy of a dataset at an address.

    workspace = Workspace("s3://bucket/data")
    with workspace.film("ponyo-01234567") as folder:
        ... work on the folder ...

The copy is kept between builds to save transfers, in the folder that `remote.mirror.copy_of` names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from pipeline.core.atomic import HeldError, held
from pipeline.core.errors import UserError
from pipeline.core.progress import Progress, silent
from pipeline.core.store import Dataset, FilmFolder, open_dataset
from pipeline.plan.request import absolute
from pipeline.remote.mirror import Mirror
from pipeline.remote.objects import is_address

_PUBLISHED = ("README.md", "report.html", "shards")
"""Names in a dataset that other people's folders may contain too."""


class Workspace:
    """The dataset that `--out` names, on this machine.

    Its methods raise RemoteError if the store at an address cannot be used; the next transfer continues from there.

    Args:
        out: path or address.
        scratch: folder to write to while a build is only planned, as for `Dataset`.
    """

    def __init__(self, out: str, scratch: Path | None = None) -> None:
        self._mirror = Mirror(out) if is_address(out) else None
        self.name = absolute(out)
        """Address, or absolute path: the dataset's name in other processes."""
        self.dataset = Dataset(self._mirror.local if self._mirror else Path(out), scratch)

    @property
    def is_copy(self) -> bool:
        """True if this is the local copy of a dataset at an address."""
        return self._mirror is not None

    def locked(self, purpose: str) -> AbstractContextManager[None]:
        """Lock the dataset against a second build on this machine until the block ends, as `held` does."""
        return held(self.dataset.root, purpose)

    def check_free(self) -> None:
        """Raise a UserError if the folder is not a dataset, but has files that a build would replace."""
        root = self.dataset.root
        others = [name for name in _PUBLISHED if (root / name).exists()]
        if others and not self.is_copy and not (root / "dataset.json").exists():
            files = " and ".join(others)
            raise UserError(f"{self.name}: no dataset, and a build would replace {files} there; name another folder")

    def check_made(self) -> None:
        """Raise a UserError that names the user's path or address if there is no dataset."""
        if self.is_copy and not (self.dataset.root / "dataset.json").exists():
            raise UserError(f"{self.name}: no dataset there (it has no dataset.json); check the address")
        open_dataset(self.dataset.root)

    def fetch(self, under: str = "", progress: Progress = silent) -> None:
        """Update the copy from the store; does nothing for a folder."""
        if self._mirror:
            self._mirror.pull(under, progress)

    def fetch_tables(self, *, vectors: bool = False) -> None:
        """Update the copy from the store without the large files: clips, shards, replies, report, `vectors` perhaps."""
        if self._mirror:
            self._mirror.pull(wanted=lambda name: _is_table(name) or (vectors and name.endswith(".npy")))

    def send(self, under: str = "", progress: Progress = silent) -> None:
        """Upload changed files to the store, references after their targets; does nothing for a folder."""
        if self._mirror:
            self._mirror.push(under, progress)

    @contextmanager
    def film(self, film_id: str) -> Iterator[FilmFolder]:
        """Yield a film's folder, fetched before the block and sent after it, even if the block fails."""
        self.fetch(film_part(film_id))
        try:
            yield self.dataset.folder(film_id)
        except BaseException:
            with suppress(UserError):  # unsent files go with the next send
                self.send(film_part(film_id))
            raise
        self.send(film_part(film_id))


def open_tables(place: str, *, vectors: bool = False) -> Workspace:
    """Open a dataset to read its tables; from an address, only the tables are fetched, and the `vectors` of clips.

    A local copy that a build is working on is the newest version, so it is not fetched again. Raises a UserError if
    there is no dataset, or the store cannot be reached.
    """
    workspace = Workspace(place)
    if workspace.is_copy:
        with suppress(HeldError), workspace.locked("fetching tables"):
            workspace.fetch_tables(vectors=vectors)
    workspace.check_made()
    return workspace


def _is_table(name: str) -> bool:
    return re.fullmatch(r"(?:[^/]+|shards/[^/]+|films/[^/]+/[^/]+)\.(?:json|parquet|toml)", name) is not None


def film_part(film_id: str) -> str:
    """The part of a dataset with the files of one film, for `fetch` and `send`."""
    return f"films/{film_id}/"
