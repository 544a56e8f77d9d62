"""Subtitle files beside films, such as `film.ja.ass` beside `film.mkv`, on a disk or in an object store."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pipeline.core.hashes import Hashes
from pipeline.core.plain_text import is_text
from pipeline.core.progress import Progress
from pipeline.core.records import SubtitleFile
from pipeline.remote.film_cache import film_content
from pipeline.remote.objects import Remote, is_address

SUFFIXES = (".ass", ".ssa", ".srt", ".vtt")


class SubtitleFiles:
    """Search for the subtitle files of films; each folder is listed once.

    Args:
        root: folder of the dataset, for copies of files at addresses.
        hashes: cache of content hashes.
    """

    def __init__(self, root: Path, hashes: Hashes) -> None:
        self._root, self._hashes = root, hashes
        self._listed: dict[str, list[str]] = {}

    def of(self, source: str, progress: Progress) -> tuple[SubtitleFile, ...]:
        """Return the subtitle files beside a film; none for a web server, which does not list its folders.

        Raises:
            RecordError: a file cannot be read.
            RemoteError: the store cannot be reached, or gives no permission to list the folder.
            OSError: the folder cannot be listed.
        """
        if source.lower().startswith(("http://", "https://")):
            return ()
        folder, _, film = source.rpartition("/")
        if folder not in self._listed:
            self._listed[folder] = Remote(folder).names() if is_address(source) else os.listdir(folder or "/")  # noqa: PTH208
        return tuple(
            SubtitleFile(
                ending=name[len(_stem(film)) :],
                source=f"{folder}/{name}",
                sha256=film_content(f"{folder}/{name}", self._root, self._hashes, progress),
            )
            for name in subtitles_of(film, self._listed[folder])
        )


def subtitles_of(film: str, names: Iterable[str]) -> list[str]:
    """Return the names of the subtitle files of a film among those of its folder, sorted.

    `film.2.ja.srt` belongs to `film.2.mkv` if the folder has it, else to `film.mkv`.
    """
    stem = _stem(film)
    near = sorted(name for name in names if name.startswith(stem + ".") and is_text(name))
    longer = [f"{_stem(name)}." for name in near if not is_subtitle(name) and len(_stem(name)) > len(stem)]
    return [name for name in near if is_subtitle(name) and not name.startswith(tuple(longer))]


def is_subtitle(name: str) -> bool:
    """Return True for the name of a file of subtitles."""
    return name.lower().endswith(SUFFIXES)


def _stem(name: str) -> str:
    return os.path.splitext(name)[0]  # noqa: PTH122
