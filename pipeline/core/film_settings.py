"""Settings of single films, `[[films]]`: corrections of what the build reads from names."""

from __future__ import annotations

import unicodedata
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, Field

from pipeline.core.plain_text import is_line
from pipeline.core.settings import Settings


def _line(text: str) -> str:
    if not is_line(text):
        raise ValueError("must be one line of text without control characters")
    return text.strip()


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

    def is_about(self, film_id: str, source: str) -> bool:
        """Return True if the block is about the film with this id and path or address."""
        match, path = (unicodedata.normalize("NFC", text) for text in (self.match, source))
        end = "/".join(path.split("/")[-1 - match.count("/") :])  # as many parts as the pattern has
        return match in (film_id, end) or fnmatchcase(end, match)
