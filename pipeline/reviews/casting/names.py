"""Names of figures: an append-only file (`cast.jsonl`) with an action of the cast page per line.

    {"time": "2026-11-28T10:11:12.345Z", "reviewer": "anna", "does": "name", "names": ["Ponyo"],
     "figures": {"6c1f...": [[12.833, 0.1, 0.05, 0.4, 0.9]]}}                                      (on one line)

A line names figures by film content, time and box, not by cluster or clip, so names outlive new networks, new clusters
and clips cut again. The newest line about a figure counts. Lines with the same time are one action; a line that undoes
takes back the newest action of its reviewer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from pipeline.captions.cast import name_fault
from pipeline.core.atomic import append_lines
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record
from pipeline.reviews.casting.figures import SAME_BOX, Figure, overlap
from pipeline.reviews.decisions import Reviewer, Time
from pipeline.stages.embed import PICTURES

CAST_FILE: Final = "cast.jsonl"

Deed = Literal["name", "discard", "group", "undo"]
Mark = tuple[float, float, float, float, float]
"""Seconds in the film; left, top, right and bottom as shares of the picture."""


def _checked_name(name: str) -> str:
    """Refuse what cannot be a name: names become folders."""
    if fault := name_fault(name):
        raise ValueError(f"{name[:80]!r}: {fault}")
    return name


class CastLine(Record):
    """Action of a person about figures."""

    model_config = ConfigDict(strict=True)

    time: Time
    reviewer: Reviewer
    does: Deed = Field(
        description="`name`: these characters are on it, none: nobody of the cast; `discard`: it shows no figure; "
        "`group`: these are one row without a name yet; `undo`: the newest action of the reviewer does not count"
    )
    names: Annotated[tuple[Annotated[str, AfterValidator(_checked_name)], ...], Field(strict=False)] = ()
    figures: Mapping[str, Annotated[tuple[Annotated[Mark, Field(strict=False)], ...], Field(strict=False)]] = Field(
        default={}, description="by the hash of the film's content: seconds, left, top, right, bottom"
    )


@dataclass(frozen=True)
class Standing:
    """Newest action about a figure, and its line."""

    line: int
    """Place of its line among those that count."""
    does: Deed
    names: tuple[str, ...]


@dataclass(frozen=True)
class CastFile:
    """Content of a file of names."""

    lines: tuple[CastLine, ...] = ()
    faults: int = 0
    """Lines that cannot be read, such as one torn by a crash."""

    def actions(self) -> list[CastLine]:
        """Return the lines that count, without those that were undone."""
        counted: list[CastLine] = []
        for line in self.lines:
            if line.does != "undo":
                counted.append(line)
            elif own := [one.time for one in counted if one.reviewer == line.reviewer]:
                counted = [one for one in counted if (one.reviewer, one.time) != (line.reviewer, own[-1])]
        return counted

    def standings(self, figures: Sequence[Figure]) -> list[Standing | None]:
        """Return what counts about each figure; after another cut, what counts about the nearest picture."""
        known: dict[str, dict[Mark, Standing]] = defaultdict(dict)
        for place, line in enumerate(self.actions()):
            standing = Standing(place, line.does, line.names)
            for sha256, marks in line.figures.items():
                known[sha256] |= dict.fromkeys(marks, standing)
        in_time = {sha256: sorted(marks) for sha256, marks in known.items()}
        return [_standing(figure, known[figure.film_sha256], in_time.get(figure.film_sha256, [])) for figure in figures]


def mark_of(figure: Figure) -> Mark:
    """Return a figure as a line names it."""
    left, top, right, bottom = (round(share, 4) for share in figure.box)
    return round(figure.seconds, 3), left, top, right, bottom


def marks_of(figures: Iterable[Figure]) -> dict[str, tuple[Mark, ...]]:
    """Return figures as a line names them, by film."""
    found: dict[str, list[Mark]] = defaultdict(list)
    for figure in figures:
        found[figure.film_sha256].append(mark_of(figure))
    return {sha256: tuple(marks) for sha256, marks in found.items()}


def read_cast_file(path: Path) -> CastFile:
    """Read a file of names; a missing one is empty. Raises UserError if it cannot be read."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file; move it away, it has the place of the names of figures")
    lines, faults = [], 0
    try:
        with disk_errors(path), path.open("rb") as file:
            for line in filter(bytes.strip, file):
                try:
                    lines.append(CastLine.model_validate_json(line))
                except ValidationError:
                    faults += 1
    except FileNotFoundError:
        return CastFile()
    return CastFile(tuple(lines), faults)


def append_to_cast_file(path: Path, lines: Iterable[CastLine]) -> None:
    """Append lines; when it returns, they are on the disk. Raises DiskError; then none is."""
    text = "".join(line.model_dump_json(exclude_defaults=True) + "\n" for line in lines)
    append_lines(path, text.encode())


def _standing(figure: Figure, known: Mapping[Mark, Standing], in_time: Sequence[Mark]) -> Standing | None:
    """Standing of the same figure, or of the nearest within half the step between pictures whose box is the same."""
    mark = mark_of(figure)
    if mark in known:
        return known[mark]
    reach = (figure.clip.end_seconds - figure.clip.start_seconds) / PICTURES / 2
    first = bisect_left(in_time, (mark[0] - reach,))
    near = []
    for other in in_time[first:]:
        if other[0] > mark[0] + reach:
            break
        if overlap(figure.box, other[1:]) >= SAME_BOX:
            near.append(other)
    return known[min(near, key=lambda other: abs(other[0] - mark[0]))] if near else None
