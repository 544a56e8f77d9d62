"""Truth about a film of the benchmark: its changes of scene, by time, and the scenes that a clip shows.

The table of a folder of titles is `truth.tsv`: file, kind, first and last changed frame, confidence, the same in
seconds, a note. Seconds count, since some containers leave out repeated frames.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pipeline.core.errors import UserError

LEAST_SHARE = 0.1
"""Share of a clip from which a scene counts as shown."""
BLANK = "from or to blank"
"""Kind of a fade at one end of which there is no scene."""


@dataclass(frozen=True)
class Change:
    """Change of scene; a cut starts and ends at the first frame of the new scene."""

    kind: str
    start_seconds: float
    end_seconds: float

    @property
    def is_cut(self) -> bool:
        """True for a cut, false for a gradual change."""
        return self.kind == "cut"

    @property
    def seconds(self) -> float:
        """Moment from which the new scene has the larger weight."""
        return (self.start_seconds + self.end_seconds) / 2


@dataclass(frozen=True)
class Film:
    """A film with its truth.

    Attributes:
        path: the video file.
        changes: changes of scene, by time.
        is_held_out: whether thresholds may not be tuned on it.
    """

    path: Path
    changes: tuple[Change, ...]
    is_held_out: bool


def read_titles(folder: Path) -> list[Film]:
    """Return the films that `truth.tsv` of the folder lists; every second film of a style is held out.

    The style is a column of `INDEX.tsv`; films without changes in `truth.tsv` are not marked, and are left out.
    """
    truth, styles = _rows(folder / "truth.tsv"), {row["file"]: row["style"] for row in _rows(folder / "INDEX.tsv")}
    films: list[Film] = []
    seen: dict[str, int] = {}
    for name in sorted({row["file"] for row in truth}):
        changes = [_change(row) for row in truth if row["file"] == name]
        count = seen[styles[name]] = seen.get(styles[name], 0) + 1
        films.append(Film(folder / name, tuple(sorted(changes, key=lambda change: change.seconds)), count % 2 == 0))
    return films


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file, delimiter="\t"))
    except FileNotFoundError as error:
        raise UserError(
            f"{path} does not exist; it lists the films of the folder and their changes of scene"
        ) from error


def _change(row: dict[str, str]) -> Change:
    return Change(BLANK if row["kind"] == "fade" else row["kind"], float(row["t_first_s"]), float(row["t_last_s"]))


def shares(changes: Sequence[Change], start_seconds: float, end_seconds: float) -> list[float]:
    """Return the share of each scene in a stretch of film; a blank picture is no scene."""
    edges = [change.seconds for change in changes if change.kind != BLANK]
    inside = [seconds for seconds in edges if start_seconds < seconds < end_seconds]
    points = [start_seconds, *inside, end_seconds]
    return [(after - before) / (end_seconds - start_seconds) for before, after in pairwise(points)]


def is_mixed(changes: Sequence[Change], start_seconds: float, end_seconds: float) -> bool:
    """Return true if two scenes each fill a tenth of a stretch of film or more."""
    return sum(share >= LEAST_SHARE for share in shares(changes, start_seconds, end_seconds)) > 1
