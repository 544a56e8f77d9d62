"""Series, season and episode of films, read from their folders and file names.

    name_of_episode("shows/Frieren/Season 2/[Group] Frieren - 07v2 [1080p].mkv", ()).episode    7

A table of patterns serves anime better than `guessit`, whose 5 MB read `One Piece - 1071` as episode 71 of season 10.
A name without an episode is a film of its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from pipeline.core.config import Config
from pipeline.core.film_settings import OneFilmSettings
from pipeline.core.languages import language_of
from pipeline.core.plain_text import first_few, printable
from pipeline.core.records import Film
from pipeline.stages.stretches import ranges_beyond

_MOST_NAMED = 4
"""Films that a notice names."""
_TECHNICAL = re.compile(
    r"\((?=[^)]*(\d{3,4}[pi]\b|\d{3,4}x\d{3,4}|BD|DVD|Blu-?ray|WEB|[xh]\.?26[45]|HEVC|FLAC|AAC|\d+-?bit))[^)]*\)", re.I
)
_NUMBER_IN_BRACKETS = re.compile(r"\[(\d{1,3})(?:v\d)?\]")
_BRACKETS = re.compile(r"\[[^\]]*\]|【[^】]*】")
_EPISODES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bS(?P<season>\d{1,2})[ ._-]*EP?(?P<episode>\d{1,4})(?!\d)",
        r"\b(?P<season>\d{1,2})x(?P<episode>\d{2,3})\b",
        r"第 ?(?P<episode>\d{1,4}) ?[話回]",
        r"(?:^|\W)(?:(?:episode|ep|#)[ .]*|(?<![^ ])e[ .]?(?!(?:19|20)\d\d\b))"
        r"(?P<episode>\d{1,4})(?:v\d)?(?![\d.]*\d)\b",
        r" - (?!(?:19|20)\d\d\b)(?P<episode>\d{1,4})(?:v\d)?(?= |$|-\d+(?: |$))",
        r"^(?P<episode>\d{1,3})(?:v\d)?(?=$| - |\. )",
        r"^- (?P<episode>\d{1,3})(?= |$)",  # [07] Name
    )
)
"""Forms of an episode's number, the clearest first."""
_LAST_NUMBER = re.compile(r"(?<= )(?P<episode>\d{1,3})(?:v\d)?(?: END)?$")
"""Number at the end of a name, as in `Toradora 19`; it may belong to the name, as in `Mob Psycho 100`."""
_SEASON = re.compile(
    r"[ (-]*(?:\bseason ?(\d{1,2})|\bS(\d{1,2})|\b(\d{1,2})(?:st|nd|rd|th) season|第(\d{1,2})期)[ )-]*$",
    re.IGNORECASE,
)


class EpisodeName(NamedTuple):
    """Position of a film in a series; all None for a film of its own."""

    series: str | None = None
    season: int | None = None
    episode: int | None = None


def name_of_episode(source: str, neighbours: Iterable[str]) -> EpisodeName:
    """Read the path or address of a film; `neighbours` are the names of the films in its folder."""
    path = PurePath(source)
    text = _plain(path.stem)
    match = next((found for pattern in _EPISODES if (found := pattern.search(text))), None)
    if match is None and (last := _LAST_NUMBER.search(text)):
        others = (_plain(PurePath(name).stem) for name in neighbours)
        counted = (found for other in others if other != text and (found := _LAST_NUMBER.search(other)))
        match = last if any(found.string[: found.start()] == text[: last.start()] for found in counted) else None
    if match is None:
        return EpisodeName()
    series, season = _without_season(text[: match.start()])
    folder, season_of_folder = _series_of_folders(path.parent)
    given = match.groupdict().get("season")
    numbers = (int(given) if given else None, season, season_of_folder)
    return EpisodeName(series or folder, next((one for one in numbers if one is not None), None), int(match["episode"]))


def _plain(stem: str) -> str:
    """Name without brackets, technical notes, and underscores or dots in place of spaces."""
    text = _NUMBER_IN_BRACKETS.sub(r" - \1 ", stem)
    text = _TECHNICAL.sub(" ", _BRACKETS.sub(" ", text)).strip() or stem
    if " " not in text:
        text = text.replace("_", " ") if "_" in text else re.sub(r"\.(?!\d$)", " ", text)
    return " ".join(text.replace("_", " ").split())


def _without_season(text: str) -> tuple[str, int | None]:
    found = _SEASON.search(text := text.strip(" -–_."))
    if found is None:
        return text, None
    return text[: found.start()].strip(" -"), int(next(filter(None, found.groups())))


def _series_of_folders(folder: PurePath) -> tuple[str | None, int | None]:
    """Series and season that the folder of an episode names, or the folder above `Season 2`."""
    series, season = _without_season(_plain(folder.name))
    return series or _without_season(_plain(folder.parent.name))[0] or None, season


def with_episodes(
    films: Sequence[Film], settings: Sequence[OneFilmSettings], others: Iterable[Film] = ()
) -> list[Film]:
    """Return the films with series, season and episode of their present names, corrected by `[[films]]`.

    Of several blocks about a film, the last that has a key counts. `others` are the other films of the dataset.
    """
    neighbours = defaultdict[PurePath, list[str]](list)
    for path in (PurePath(film.source) for film in (*films, *others)):
        neighbours[path.parent].append(path.name)
    return [_with_episode(film, neighbours[PurePath(film.source).parent], settings) for film in films]


def _with_episode(film: Film, neighbours: Iterable[str], settings: Sequence[OneFilmSettings]) -> Film:
    tracks = film.audio_tracks or ()
    given: dict[str, object] = {"skip": None, "language": language_of(tracks[0].language) if tracks else None}
    for one in settings:
        if one.is_about(film.film_id, film.source):
            given |= one.model_dump(include={*EpisodeName._fields, "skip", "language"}, exclude_none=True)
    if given.get("series") == "":
        given |= EpisodeName()._asdict()
    return film.model_copy(update=name_of_episode(film.source, neighbours)._asdict() | given)


def episode_notices(films: Sequence[Film], config: Config) -> list[str]:
    """Name what in the settings cannot be meant.

    That is: episodes that several films claim to be, blocks of `[[films]]` about no film, and ranges beyond the end.
    """
    by_name: dict[str, list[str]] = {}
    for film in films:
        if film.episode is not None:
            by_name.setdefault(film.episode_name, []).append(film.name)
    notices = [
        f"{printable(name)} is the number of {len(same)} films, {first_few(same, _MOST_NAMED)}; correct it in "
        "[[films]] of --config"
        for name, same in by_name.items()
        if len(same) > 1
    ]
    unused = [one.match for one in config.films if not any(one.is_about(film.film_id, film.source) for film in films)]
    if unused:
        notices.append(f"[[films]] matches no film of this build: {first_few(unused, _MOST_NAMED)}")
    beyond: dict[str, list[str]] = {}
    for film in films:
        for text in ranges_beyond(film, config.selection):
            beyond.setdefault(text, []).append(film.name)
    return notices + [
        f"skip {text!r} begins after the end of {first_few(names, _MOST_NAMED)}; correct it in --config"
        for text, names in beyond.items()
    ]
