"""Comparison of the episodes of each series in a dataset, as soon as all of them are measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from pipeline.core.ingredients import fingerprint
from pipeline.core.measurements import Looks
from pipeline.core.records import Clip, Film, HashedPicture, Scene
from pipeline.core.stage import is_whole
from pipeline.core.store import Dataset, FilmFolder

_VERSION = 3
"""Number to raise whenever the same episodes would give other repeats."""
MEASURED = ("crop", "cut", "looks")
"""Stages whose results are compared."""


def series_of(dataset: Dataset, film_ids: Iterable[str]) -> list[list[FilmFolder]]:
    """Return the folders of the episodes of each series that has several, in the order of their numbers."""
    by_name: defaultdict[str, list[tuple[Film, FilmFolder]]] = defaultdict(list)
    for film_id in film_ids:
        folder = dataset.folder(film_id)
        if (film := folder.film_if_made) and film.series:
            by_name[film.series].append((film, folder))
    several = (episodes for episodes in by_name.values() if len(episodes) > 1)
    return [[folder for _, folder in sorted(each, key=lambda one: one[0].episode_place)] for each in several]


def compare_episodes(dataset: Dataset, film_ids: Iterable[str]) -> list[str]:
    """Find the repeats in the measured episodes of every series; return the ids of the films whose records changed.

    Episodes that were compared already are left alone. Raises StoreError if a table cannot be read.
    """
    ids, changed = list(film_ids), []
    found: dict[str, Film] = {}
    for folders in series_of(dataset, ids):
        measured = [folder for folder in folders if is_whole(folder, MEASURED)]
        if len(measured) > 1:
            found.update(_compared(measured))
    for film_id in ids:
        if (before := dataset.folder(film_id).film_if_made) is None:
            continue
        film = found.get(film_id) or before.model_copy(update={"repeats": (), "compared": None})
        if film != before:
            dataset.folder(film_id).save_film(film)
            changed.append(film_id)
    return changed


def _compared(folders: Sequence[FilmFolder]) -> dict[str, Film]:
    """Films of a series with their repeats, by id."""
    films = [folder.film for folder in folders]
    records = [[folder.stage_record(stage) for stage in ("cut", "looks")] for folder in folders]
    made_of = [
        [film.film_id, *(record and record.result for record in of_film)]
        for film, of_film in zip(films, records, strict=True)
    ]
    chapters = [film.model_dump(mode="json")["chapters"] for film in films]
    compared = fingerprint({"version": _VERSION, "episodes": made_of, "chapters": chapters})
    if all(film.compared == compared for film in films):
        return {film.film_id: film for film in films}
    from pipeline.stages.season.alignment import HashedEpisode  # only a build that compares needs these
    from pipeline.stages.season.repeats import repeats_of

    frames_of = _all_frames if all(folder.table_path("hashes").exists() for folder in folders) else _clip_frames
    episodes = [
        HashedEpisode.of(folder.film_id, film.duration_seconds, frames_of(folder), folder.read("scenes", Scene))
        for folder, film in zip(folders, films, strict=True)
    ]
    repeats = repeats_of(films, episodes)
    return {
        film.film_id: film.model_copy(update={"repeats": rows, "compared": compared})
        for film, rows in zip(films, repeats, strict=True)
    }


def _all_frames(folder: FilmFolder) -> Iterator[tuple[float, str]]:
    """Yield the times and hashes of a film's frames."""
    for picture in folder.read("hashes", HashedPicture):
        yield picture.seconds, picture.hash


def _clip_frames(folder: FilmFolder) -> Iterator[tuple[float, str]]:
    """Yield the times and hashes of the frames in clips, of a film that was cut before there was a table of hashes."""
    hashes = {row.clip_id: row.hashes for row in folder.read("looks", Looks)}
    for clip in folder.read("clips", Clip):
        for number, text in enumerate(hashes.get(clip.clip_id, ())):
            yield clip.start_seconds + number / float(clip.fps), text
