"""Matching of decisions to the clips of a dataset: by film content and shared time.

A decision is about the clip that shares the most time with it, if they share at least nine tenths of the longer span.
So if a film is cut again, a review stays with its clip unless the clip has moved far, and decisions about other films
are left alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Generic, Protocol, TypeVar

from pipeline.core.records import Clip

LEAST_SHARE = 0.9
"""Shared time over the longer span from which on both are the same piece of film."""
_ROUNDING = 1e-6


class Spanned(Protocol):
    """Record about a span of film, such as a decision."""

    @property
    def film_sha256(self) -> str:
        """Content hash of the film."""
        ...

    @property
    def start_seconds(self) -> float:
        """Start of the span."""
        ...

    @property
    def end_seconds(self) -> float:
        """End of the span."""
        ...


D = TypeVar("D", bound=Spanned)


@dataclass(frozen=True)
class Matches(Generic[D]):
    """Decisions by the clips of a dataset."""

    by_clip: Mapping[str, Sequence[D]]
    """Decisions about each clip, in the order of the file."""
    unmatched: Sequence[D]
    """Decisions about a span of one of its films that no clip shares."""
    foreign: Sequence[D]
    """Decisions about films that are not in the dataset."""


def match(decisions: Iterable[D], films: Mapping[str, Sequence[Clip]]) -> Matches[D]:
    """Match decisions, in the order of the file, to the clips of each film, by the film's content hash."""
    indexes = {sha256: _FilmClips(clips) for sha256, clips in films.items()}
    by_clip: dict[str, list[D]] = defaultdict(list)
    unmatched: list[D] = []
    foreign: list[D] = []

    @cache
    def clip_of(film_sha256: str, start_seconds: float, end_seconds: float) -> str | None:
        return indexes[film_sha256].nearest(start_seconds, end_seconds)

    for decision in decisions:
        if decision.film_sha256 not in indexes:
            foreign.append(decision)
        elif clip_id := clip_of(decision.film_sha256, decision.start_seconds, decision.end_seconds):
            by_clip[clip_id].append(decision)
        else:
            unmatched.append(decision)
    return Matches(dict(by_clip), unmatched, foreign)


def shared_share(clip: Clip, start_seconds: float, end_seconds: float) -> float:
    """Return the time that a clip and a span have in common, over the longer of the two."""
    shared = min(clip.end_seconds, end_seconds) - max(clip.start_seconds, start_seconds)
    return max(0.0, shared) / max(clip.end_seconds - clip.start_seconds, end_seconds - start_seconds)


class _FilmClips:
    """Clips of one film in time order."""

    def __init__(self, clips: Iterable[Clip]) -> None:
        self._clips = sorted(clips, key=lambda clip: clip.start_seconds)
        self._starts = [clip.start_seconds for clip in self._clips]
        longest = max((clip.end_seconds - clip.start_seconds for clip in self._clips), default=0.0)
        self._reach_seconds = (1 / LEAST_SHARE - 1) * longest + _ROUNDING
        """Most time between the starts of a clip and a span that share enough."""

    def nearest(self, start_seconds: float, end_seconds: float) -> str | None:
        """Return the id of the clip that shares most of a span, the earlier of two; None if none shares enough."""
        first = bisect_left(self._starts, start_seconds - self._reach_seconds)
        last = bisect_right(self._starts, start_seconds + self._reach_seconds)
        shares = [(shared_share(clip, start_seconds, end_seconds), clip) for clip in self._clips[first:last]]
        best, clip = max(shares, key=lambda pair: round(pair[0], 6), default=(0.0, None))
        return clip.clip_id if clip and best > LEAST_SHARE - _ROUNDING else None
