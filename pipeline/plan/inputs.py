"""Inputs of a build: files and addresses as named, folders and patterns as the films in them.

Inputs.of(["season 1/"]).films    season 1/ep 2.mkv before season 1/ep 10.mkv, and the films of subfolders
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path

from pipeline.core.plain_text import first_few, printable
from pipeline.core.records import Failure
from pipeline.remote.objects import is_address

SUFFIXES = re.compile(
    r"\.(3g2|3gp|asf|avi|divx|dv|f4v|flv|m[124]v|m2ts|mkv|mov|mp4|mpe?g|mts|mxf|nut|og[mv]|qt|rm|rmvb|ts|vob|webm|wmv|y4m)",
    re.IGNORECASE,
)
"""Suffixes of video files. A file with another one is used only if the user names it."""
_MOST_NAMED = 4
"""Skipped files that a notice names."""


@dataclass
class Inputs:
    """The films that a build's inputs name, in the order given; those of a folder in the order people count in."""

    films: list[str] = field(default_factory=list)
    refused: list[Failure] = field(default_factory=list)
    """Folders and patterns without a film, and folders that cannot be read."""
    notices: list[str] = field(default_factory=list)
    """A line for each folder or pattern with other files, which are skipped."""

    @classmethod
    def of(cls, names: Sequence[str]) -> Inputs:
        """Search the folders and patterns among the names; all others are kept as they are."""
        found = cls()
        for name in names:
            if is_address(name):
                found.films.append(name)
            elif os.path.isdir(name):  # noqa: PTH112 - Path.is_dir raises for names that are too long
                found._add(name, found._files_below(Path(name)))
            elif has_magic(name) and not os.path.lexists(name):
                found._add(name, found._matches(name))
            else:
                found.films.append(name)
        return found

    def _add(self, name: str, files: Iterator[Path]) -> None:
        every = sorted(files, key=_natural)
        films = [str(file) for file in every if SUFFIXES.fullmatch(file.suffix)]
        others = [file.name for file in every if not SUFFIXES.fullmatch(file.suffix)]
        self.films += films
        if not films:
            of_others = f", only {first_few(others, _MOST_NAMED)}" if others else ""
            self.refused.append(Failure(record_id=printable(name), reason=f"no video file there{of_others}"))
        elif others:
            noun = "file that is no video" if len(others) == 1 else "files that are no videos"
            self.notices.append(f"{printable(name)}: skipped {len(others):,} {noun}: {first_few(others, _MOST_NAMED)}")

    def _matches(self, pattern: str) -> Iterator[Path]:
        for match in map(Path, glob(pattern, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute pattern
            if match.is_dir():
                yield from self._files_below(match)
            elif not any(map(_is_ours, match.parents)):
                yield match

    def _files_below(self, folder: Path) -> Iterator[Path]:
        """Files of a folder and its subfolders, without hidden ones and without our own clips."""
        for place, folders, files in os.walk(folder, onerror=self._refuse):
            if _is_ours(Path(place)):
                folders.clear()
                continue
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from (Path(place, name) for name in files if not name.startswith("."))

    def _refuse(self, error: OSError) -> None:
        self.refused.append(Failure(record_id=printable(str(error.filename)), reason=f"cannot be read: {error}"))


def _is_ours(folder: Path) -> bool:
    """Return True for a data set and an export, whose clips are no films."""
    return (folder / ".export.json").exists() or ((folder / "dataset.json").exists() and (folder / "films").is_dir())


def _natural(path: Path) -> list[list[str | int]]:
    """Sorting key by the numbers in each part of a path: `ep 2` comes before `ep 10`."""
    parts = (re.split(r"(\d+)", part.casefold()) for part in path.parts)
    return [[int(word) if number % 2 else word for number, word in enumerate(part)] for part in parts]
