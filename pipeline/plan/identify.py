"""Films of a build: the files that its inputs name, identified by content hash, independent of name and path.

Inputs are files and addresses, folders and patterns. A renamed, moved or touched film is the same film. A file with
new content is a new film. It replaces the film found at its path before, which is delisted but keeps its folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path, PurePath

from pipeline.core.hashes import FILM_HASHES, Hashes
from pipeline.core.plain_text import first_few, is_text, printable
from pipeline.core.progress import Progress, watched
from pipeline.core.records import Failure, Film, RecordError, make_film_id
from pipeline.core.store import Dataset, FilmEntry, FilmFolder, StoreError
from pipeline.plan.request import absolute
from pipeline.plan.subtitle_files import SubtitleFiles, is_subtitle
from pipeline.remote.film_cache import copied_bytes, delete_local_copy, film_content, film_file
from pipeline.remote.objects import RemoteError, is_address
from pipeline.stages.probe import probe_in_child

SUFFIXES = re.compile(
    r"\.(3g2|3gp|asf|avi|divx|dv|f4v|flv|m[124]v|m2ts|mkv|mov|mp4|mpe?g|mts|mxf|nut|og[mv]|qt|rm|rmvb|ts|vob|webm|wmv|y4m)",
    re.IGNORECASE,
)
"""Suffixes of video files. A file with another one is used only if the user names it."""
_MOST_NAMED = 4
"""Skipped files that a notice names."""
KEPT_BYTES = 64 << 30
"""Limit of the local copies kept while planning; films beyond it are fetched again when they are processed."""


@dataclass
class Inputs:
    """The films that a build's inputs name, in the order given; in a folder, `ep 2` comes before `ep 10`."""

    films: list[str] = field(default_factory=list)
    refused: list[Failure] = field(default_factory=list)
    """Folders and patterns without a film, and folders that cannot be read."""
    notices: list[str] = field(default_factory=list)
    """A line for each folder or pattern with other files, which are skipped."""

    @classmethod
    def of(cls, names: Sequence[str]) -> Inputs:
        """Search the folders and patterns among the names; all other names are kept unchanged."""
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
        every = sorted(set(files), key=_natural)
        films = [str(file) for file in every if SUFFIXES.fullmatch(file.suffix)]
        others = [file.name for file in every if not SUFFIXES.fullmatch(file.suffix) and not _is_beside(file, films)]
        self.films += films
        if not films:
            of_others = f", only {first_few(others, _MOST_NAMED)}" if others else ""
            self.refused.append(Failure(record_id=printable(name), reason=f"no video file there{of_others}"))
        elif others:
            noun = "file that is no video" if len(others) == 1 else "files that are no videos"
            self.notices.append(f"{printable(name)}: skipped {len(others):,} {noun}: {first_few(others, _MOST_NAMED)}")

    def _matches(self, pattern: str) -> Iterator[Path]:
        for match in map(Path, glob(pattern, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute pattern
            if any(map(_is_ours, match.parents)):
                continue
            if match.is_dir():
                yield from self._files_below(match)
            else:
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
    """Return True for a dataset and an export, whose clips are no films."""
    return (folder / ".export.json").exists() or ((folder / "dataset.json").exists() and (folder / "films").is_dir())


def _is_beside(file: Path, films: Sequence[str]) -> bool:
    """Return True for the subtitles of one of the films."""
    return is_subtitle(file.name) and any(str(file).startswith(f"{os.path.splitext(film)[0]}.") for film in films)  # noqa: PTH122


def _natural(path: Path) -> list[list[str | int]]:
    """Sorting key that compares the numbers in each part of a path as numbers."""
    parts = (re.split(r"(\d+)", part.casefold()) for part in path.parts)
    return [[int(word) if number % 2 else word for number, word in enumerate(part)] for part in parts]


@dataclass
class IdentifiedFilms:
    """Films, rejected files and notices of a build's inputs."""

    films: list[Film] = field(default_factory=list)
    refused: list[Failure] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)
    """Ids of films whose path now holds another film, with the id of that film."""

    def listed(self, before: Sequence[FilmEntry]) -> tuple[FilmEntry, ...]:
        """The dataset's entries with these films: a new film gets the position of the film it replaces, or the last."""
        known = {entry.film_id for entry in before}
        new = {
            film.film_id: FilmEntry(film_id=film.film_id, name=film.name, sha256=film.sha256)
            for film in self.films
            if film.film_id not in known
        }
        listed: list[FilmEntry] = []
        for entry in before:
            if entry.film_id not in self.replaced:
                listed.append(entry)
            elif successor := new.pop(self.replaced[entry.film_id], None):
                listed.append(successor)
        return (*listed, *new.values())


def identify(paths: Sequence[str], dataset: Dataset) -> IdentifiedFilms:
    """Identify the films at these inputs by content; content given twice is used once, under its first name."""
    inputs = Inputs.of(paths)
    found, seen = IdentifiedFilms(refused=inputs.refused, notices=inputs.notices), dict[str, Film]()
    hashes, place = Hashes(dataset.root / FILM_HASHES), dataset.scratch or dataset.root
    id_by_source = {film.source: film.film_id for folder in dataset.folders() if (film := known_film(folder))}
    beside = SubtitleFiles(place, hashes)
    room = KEPT_BYTES
    for path in inputs.films:
        before = len(seen)
        try:
            with watched(PurePath(path).name, "identify") as watch:
                watch.changed = False
                sha256 = film_content(path, place, hashes, watch)
                if not dataset.scratch:
                    hashes.save()
                if sha256 in seen:
                    found.notices.append(f"{path}: the same content as {seen[sha256].name}, used once")
                else:
                    film = _probe(path, sha256, dataset, watch)
                    seen[sha256] = _with_subtitles(film, dataset, beside, found.notices, watch)
        except RecordError as error:
            found.refused.append(Failure(record_id=printable(path), reason=error.reason))
        except RemoteError as error:
            found.refused.append(Failure(record_id=printable(path), reason=str(error)))
        room -= copied_bytes(path, place)
        if room < 0 or len(seen) == before or dataset.scratch:
            delete_local_copy(path, place)
    found.films = list(seen.values())
    _find_replaced(found, id_by_source)
    return found


def _find_replaced(found: IdentifiedFilms, id_by_source: dict[str, str]) -> None:
    here = {film.film_id for film in found.films}
    for film in found.films:
        before = id_by_source.get(film.source, film.film_id)
        if before not in here:
            found.replaced[before] = film.film_id
            found.notices.append(f"{film.name}: new content, which replaces {before}; the folder of {before} is kept")


def _probe(path: str, sha256: str, dataset: Dataset, progress: Progress) -> Film:
    """The film's record, probed if it is new, with its current source saved."""
    name, source = PurePath(path).name, absolute(path)
    if not is_text(source):
        raise RecordError(name, "its name is not valid UTF-8, which no table can hold; rename the file")
    film_id = _id_before(sha256, dataset) or make_film_id(name, sha256)
    folder = dataset.folder(film_id)
    known = known_film(folder)
    film = known or _probe_alone(film_file(path, dataset.scratch or dataset.root, progress), film_id, sha256)
    if None in (film.chapters, film.audio_tracks) and not is_address(path):  # by an old probe; not worth a fetch
        again = _probe_alone(Path(path), film_id, sha256)
        film = film.model_copy(update={"chapters": again.chapters, "audio_tracks": again.audio_tracks})
    film = film.model_copy(update={"source": source})
    if film != known:
        folder.save_film(film)
    return folder.film


def _with_subtitles(
    film: Film, dataset: Dataset, beside: SubtitleFiles, notices: list[str], progress: Progress
) -> Film:
    """The film with the subtitle files beside it saved; with those of before, and a notice, if they are not known."""
    try:
        files = beside.of(film.source, progress)
    except (RecordError, RemoteError, OSError) as error:
        notices.append(f"{film.name}: files beside it are not looked at for subtitles: {error}")
        return film
    if files != film.subtitle_files:
        film = film.model_copy(update={"subtitle_files": files})
        dataset.folder(film.film_id).save_film(film)
    return film


def _probe_alone(path: Path, film_id: str, sha256: str) -> Film:
    """Probe a film; a bug in the probe prints its traceback and rejects this film only."""
    try:
        return probe_in_child(path, film_id, sha256)
    except RuntimeError as error:
        raise RecordError(film_id, f"the probe failed: {error}") from error


def _id_before(sha256: str, dataset: Dataset) -> str | None:
    """The id under which this content is or was listed; a delisted film keeps its folder."""
    entry = next((entry for entry in dataset.record.films if entry.sha256 == sha256), None)
    if entry:
        return entry.film_id
    left = map(FilmFolder, sorted((dataset.root / "films").glob(f"*-{sha256[:8]}")))  # under any name
    return next((folder.film_id for folder in left if (film := known_film(folder)) and film.sha256 == sha256), None)


def known_film(folder: FilmFolder) -> Film | None:
    """The film as probed earlier, or None if its record is missing or cannot be read."""
    try:
        return folder.film
    except StoreError:
        return None
