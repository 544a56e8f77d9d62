"""Times at which a film's black borders change, to the frame.

The keyframes that vote lie far apart. Keyframes in between narrow the gap, and then every frame of the rest is decoded.
A frame too dark to vote counts to the smaller borders, so that no picture is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.core.config import CropSettings
from pipeline.core.records import Film
from pipeline.stages.cropping.border_votes import Ballot, BorderStretch, Vote
from pipeline.video.containers import Picture
from pipeline.video.film_reader import frames_between, keyframes

KEYFRAMES = 24
"""Largest number of keyframes with which the gap between two votes is narrowed."""


def times_of(stretch: BorderStretch, ballot: Ballot, film: Film, settings: CropSettings) -> tuple[float, float | None]:
    """Return the start and end of a stretch with larger borders, seconds; None: it lasts to the end of the film.

    It begins with its first frame without picture in the borders, after the last frame that has some, and ends after
    the last frame without, before the first that has some again.

    Raises:
        RecordError: the film cannot be opened.
    """
    search = _Search(film, settings, np.array(stretch.borders) - ballot.least_4)
    before = [vote.seconds for vote in ballot.votes[: stretch.first] if search.has_picture(vote)]
    after = [vote.seconds for vote in ballot.votes[stretch.last + 1 :] if search.has_picture(vote)]
    start = search.start(before[-1], ballot.votes[stretch.first].seconds) if before else 0.0
    return start, search.end(ballot.votes[stretch.last].seconds, after[0]) if after else None


class _Search:
    """Search for a change between two times."""

    def __init__(self, film: Film, settings: CropSettings, least_4: NDArray[np.float64]) -> None:
        self._film, self._settings, self._least_4 = film, settings, least_4

    def has_picture(self, vote: Vote) -> bool:
        """Return True if there is picture in the larger borders."""
        return bool((np.array(vote.borders(self._settings.black_luma)) < self._least_4).any())

    def start(self, before: float, inside: float) -> float:
        """Return the time of the first frame of the stretch, given times before it and inside it."""
        for marks in (self._keyframes(before, inside), self._frames(before, inside)):
            before = max((seconds for seconds, has in marks if has), default=before)
            inside = min((seconds for seconds, has in marks if has is False and seconds > before), default=inside)
        return inside

    def end(self, inside: float, after: float) -> float:
        """Return the time of the first frame after the stretch, given times inside it and after it."""
        marks: list[tuple[float, bool | None]] = []
        for marks in (self._keyframes(inside, after), self._frames(inside, after)):
            after = min((seconds for seconds, has in marks if has), default=after)
            inside = max((seconds for seconds, has in marks if has is False and seconds < after), default=inside)
        return min((seconds for seconds, _ in marks if seconds > inside), default=after)

    def _keyframes(self, start: float, end: float) -> list[tuple[float, bool | None]]:
        film = self._film
        path, between = Path(film.source), (start, end)
        return self._marks(keyframes(path, KEYFRAMES, film.rotation_degrees, film.duration_seconds, between))

    def _frames(self, start: float, end: float) -> list[tuple[float, bool | None]]:
        return self._marks(frames_between(Path(self._film.source), start, end, self._film.rotation_degrees))

    def _marks(self, pictures: Iterable[tuple[float, Picture]]) -> list[tuple[float, bool | None]]:
        """Return the times of pictures, and for each whether there is picture in the borders; None: too dark."""
        votes = ((seconds, Vote.of(seconds, picture, self._film, self._settings)) for seconds, picture in pictures)
        return [(seconds, None if vote is None else self.has_picture(vote)) for seconds, vote in votes]
