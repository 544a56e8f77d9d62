"""Stretches of untouched scenes that no kept clip shows, and the clips that a false boundary costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.real.truth import Change
from pipeline.core.config import ClipSettings
from pipeline.core.records import Clip, Verdict
from pipeline.core.store import FilmFolder
from pipeline.stages.cutting.clip_grid import TOLERANCE_SECONDS

FALSE_BOUNDARY = "false boundary"


@dataclass(frozen=True)
class Stretch:
    """Part of a scene, long enough for a clip, that no kept clip shows.

    Attributes:
        film: the film, as the setting stores it.
        reasons: of the clips that were dropped there, and `FALSE_BOUNDARY` if one lies in it.
    """

    film: Path
    start_seconds: float
    end_seconds: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Untouched:
    """Scenes of a film between its changes.

    Attributes:
        room: number of clips that fit in.
        cut_off: how many fewer were made of the scenes with a false boundary.
        lost: stretches that no kept clip shows.
    """

    room: int
    cut_off: int
    lost: list[Stretch]


class Span(Protocol):
    """Part of a film."""

    @property
    def start_seconds(self) -> float:
        """Its start."""

    @property
    def end_seconds(self) -> float:
        """Its end."""


def untouched(
    folder: FilmFolder, changes: Sequence[Change], false_boundaries: Sequence[float], settings: ClipSettings
) -> Untouched:
    """Compare the clips of a film with the room for clips between its changes."""
    clips, verdicts = folder.read("clips", Clip), {row.clip_id: row for row in folder.read("verdicts", Verdict)}
    film, least = folder.film, settings.seconds - TOLERANCE_SECONDS
    margin = settings.margin_frames / float(film.fps)
    room, cut_off, lost = 0, 0, []
    for first, last in _between(changes, 0, film.duration_seconds, least):
        is_long = last - first - 2 * margin >= least
        start, end = (first + margin, last - margin) if is_long else (first, last)
        inside = [clip for clip in clips if start < (clip.start_seconds + clip.end_seconds) / 2 < end]
        false = [seconds for seconds in false_boundaries if start < seconds < end]
        fits = int((end - start + TOLERANCE_SECONDS) / settings.seconds)
        room, cut_off = room + fits, cut_off + (max(0, fits - len(inside)) if false else 0)
        kept = [clip for clip in inside if verdicts[clip.clip_id].keep]
        for gap in _between(kept, start, end, least):
            lost.append(Stretch(Path(film.source), *gap, _reasons(*gap, inside, verdicts, false)))
    return Untouched(room, cut_off, lost)


def _between(spans: Iterable[Span], start: float, end: float, least: float) -> Iterator[tuple[float, float]]:
    """Yield the parts from `start` to `end` that no span covers and that last so long; the spans are sorted."""
    edges = [start, *(seconds for span in spans for seconds in (span.start_seconds, span.end_seconds)), end]
    return ((before, after) for before, after in zip(edges[::2], edges[1::2], strict=True) if after - before >= least)


def _reasons(
    start: float, end: float, clips: Iterable[Clip], verdicts: Mapping[str, Verdict], false_boundaries: Sequence[float]
) -> tuple[str, ...]:
    there = [clip for clip in clips if clip.start_seconds < end and start < clip.end_seconds]
    found = [reason for clip in there for reason in verdicts[clip.clip_id].reasons]
    found += [FALSE_BOUNDARY for seconds in false_boundaries if start < seconds < end]
    return tuple(dict.fromkeys(found)) or ("no clip",)
