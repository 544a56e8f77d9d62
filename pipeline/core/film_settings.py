"""Settings of single films, `[[films]]`: corrections of what the build reads from names, and ranges to skip."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import inf
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from pipeline.core.plain_text import is_line
from pipeline.core.settings import Settings


def _line(text: str) -> str:
    if not is_line(text):
        raise ValueError("must be one line of text without control characters")
    return text.strip()


_TIME = r"(?:(?:(\d+):)?(\d{1,2}):)?(\d+(?:\.\d+)?)"
_RANGE = re.compile(rf" *{_TIME} *[-–] *(?:{_TIME})? *")


def range_seconds(text: str) -> tuple[float, float]:
    """Start and end in seconds of a range such as `0:00-1:30`, `1:02:03.5-1:05:00`, or `21:30-` to the end.

    Raises:
        ValueError: it is not such a range, or ends before it starts.
    """
    if (found := _RANGE.fullmatch(text)) is None:
        raise ValueError("is not a range such as 0:00-1:30, or 21:30- up to the end")
    hours, minutes, seconds, *end = found.groups()
    start = _seconds(hours, minutes, seconds)
    stop = inf if end[-1] is None else _seconds(*end)
    if stop <= start:
        raise ValueError("ends before it starts")
    return start, stop


def _seconds(hours: str | None, minutes: str | None, seconds: str) -> float:
    return 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds)


def _range(text: str, info: ValidationInfo) -> str:
    try:
        range_seconds(text)
    except ValueError as error:
        of_film = f" of {info.data['match']!r}" if "match" in info.data else ""
        raise ValueError(f"{text[:40]!r}{of_film} {error}") from None
    return text


Range = Annotated[str, AfterValidator(_range)]
"""Range of a film's time, as text."""


class OneFilmSettings(Settings):
    """Films that `match` names; repeat the block for others. The last block that has a key counts."""

    match: str = Field(
        min_length=1, description="file name, its path's end as `Kiki/07.mkv`, a pattern as `Kiki/*`, or a film id"
    )
    series: Annotated[str | None, Field(max_length=200), AfterValidator(lambda text: text and _line(text))] = Field(
        None, description='name of the series, "" for a film of its own [default: from file and folder names]'
    )
    season: int | None = Field(None, ge=0, le=9999, description="number of the season [default: the same]")
    episode: int | None = Field(None, ge=0, le=9999, description="number of the episode [default: the same]")

    language: str | None = Field(
        None,
        pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$",
        description="of the speech, as `ja`: chooses sound and subtitles [default: of the sound track]",
    )

    skip: tuple[Range, ...] | None = Field(
        None, description='ranges to leave out, as ["0:00-1:30"] [default: `[selection] skip`]'
    )

    def is_about(self, film_id: str, source: str) -> bool:
        """Return True if the block is about the film with this id and path or address."""
        match, path = (unicodedata.normalize("NFC", text) for text in (self.match, source))
        end = "/".join(path.split("/")[-1 - match.count("/") :])  # as many parts as the pattern has
        # file names of anime have brackets: only * and ? are wild
        return match in (film_id, end) or fnmatchcase(end, match.replace("[", "[[]"))


def given_language(settings: Sequence[OneFilmSettings], film_id: str, source: str) -> str | None:
    """Return the language that `[[films]]` gives a film; of several blocks with one, the last counts."""
    about = (one.language for one in reversed(settings) if one.language and one.is_about(film_id, source))
    return next(about, None)
