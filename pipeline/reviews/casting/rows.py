"""Rows of the cast page: clusters of figures, what people have said about them, and proposals for the others.

    casting = Casting(dataset, read_figures(dataset), "anna")
    casting.act("name", casting.rows()[0].figures, ("Ponyo",))      on the disk when it returns
    casting.undo()

A figure belongs to the row of its newest action, else to its cluster. Rows exist only in memory and are named by their
first figure; what is stored names figures.
"""

from __future__ import annotations

import threading
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from pipeline.core.errors import UserError
from pipeline.core.records import faults_of
from pipeline.core.store import Dataset
from pipeline.reviews.casting.clusters import clusters, halves
from pipeline.reviews.casting.figures import Figures
from pipeline.reviews.casting.names import (
    CAST_FILE,
    CastFile,
    CastLine,
    Deed,
    Standing,
    append_to_cast_file,
    marks_of,
    read_cast_file,
)

Names = tuple[str, ...]
REACH, NEAR_REACH, NEAR_RATIO = 3.0, 1.5, 1.25
"""A name is proposed within `REACH` times the usual distance, and near within `NEAR_REACH` times, if other names are
`NEAR_RATIO` times as far."""


class InvalidActionError(UserError):
    """Action that cannot be stored; the message is shown to the person."""


@dataclass(frozen=True)
class Row:
    """Figures that are shown together."""

    figures: tuple[int, ...]
    """Their places among all figures, in time order."""
    does: Deed | None
    """Newest action about them; None for a cluster."""
    names: Names = ()
    proposal: Names | None = None
    """Names of the nearest named figures; empty: nobody of the cast."""
    likeness: float = 0.0
    """Likeness to these figures."""
    near: bool = False

    @property
    def is_open(self) -> bool:
        """True if nobody has said who it is."""
        return self.does in (None, "group")


class Casting:
    """Rows of a dataset and its file of names; thread-safe.

    Args:
        references: vectors of the pictures in the cast folder by name, shape (pictures, size).

    Raises:
        UserError: the file of names cannot be read.
    """

    def __init__(
        self,
        dataset: Dataset,
        figures: Figures,
        reviewer: str,
        references: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.figures, self.reviewer = figures, reviewer
        self.references = dict(references or {})
        self.file = dataset.root / CAST_FILE
        self.least = figures.usual_likeness()
        self.cluster_N = clusters(figures.vectors_ND, self.least)
        self._lock = threading.Lock()
        self._read, self._size = CastFile(), 0
        self._line("undo", datetime.now(UTC))  # checks the reviewer's name

    @property
    def version(self) -> int:
        """Number of lines in the file: it grows with every action, of other people too."""
        return len(self._content().lines)

    @property
    def faults(self) -> int:
        """Number of lines that cannot be read."""
        return self._content().faults

    def standings(self) -> list[Standing | None]:
        """Return what counts about each figure."""
        return self._content().standings(self.figures.items)

    def rows(self) -> list[Row]:
        """Return the open rows, the doubtful first if there is a cast folder, then the largest; the others follow."""
        standings = self.standings()
        rows = [self._row(places, standings[places[0]]) for places in self._parts(standings).values()]
        still_open = self._with_proposals([row for row in rows if row.is_open], standings)
        doubtful_first = bool(self.references)
        still_open.sort(key=lambda row: (doubtful_first and row.near, -len(row.figures), row.figures))
        order: tuple[Deed, ...] = ("name", "discard")
        done = [row for row in rows if not row.is_open]
        return still_open + sorted(done, key=lambda row: (order.index(row.does or "discard"), not row.names, row.names))

    def act(self, does: Deed, places: Iterable[int], names: Sequence[str] = ()) -> None:
        """Store an action about figures; when it returns, it is on the disk.

        Raises:
            InvalidActionError: a name cannot be the name of a character.
            DiskError: it cannot be written; the file is unchanged.
        """
        self._store([(does, places, names)])

    def split(self, places: Sequence[int]) -> None:
        """Move the half of a row that is less like its first figure into a row without a name."""
        if len(places) > 1:
            half_N = halves(self.figures.vectors_ND[list(places)])
            self.act("group", [place for place, is_moved in zip(places, half_N, strict=True) if is_moved])

    def accept(self) -> int:
        """Give all near proposals their names, as one action; return their number."""
        near = [row for row in self.rows() if row.is_open and row.near]
        self._store([("name", row.figures, row.proposal or ()) for row in near])
        return len(near)

    def undo(self) -> bool:
        """Take back the newest action of this person; return False if there is none."""
        with self._lock:
            if not any(line.reviewer == self.reviewer for line in self._content().actions()):
                return False
            append_to_cast_file(self.file, [self._line("undo", datetime.now(UTC))])
            return True

    def names(self) -> list[tuple[str, int]]:
        """Return the names of the cast folder, then others in the order of their first use, with their figures."""
        used = (name for line in self._content().actions() for name in line.names)
        counts = dict.fromkeys((*self.references, *used), 0)  # a steady order: number keys stand for names
        for standing in self.standings():
            for name in standing.names if standing else ():
                counts[name] += 1
        return list(counts.items())

    def _store(self, actions: Sequence[tuple[Deed, Iterable[int], Sequence[str]]]) -> None:
        with self._lock:
            last = max((line.time for line in self._content().lines), default=datetime.min.replace(tzinfo=UTC))
            now = max(datetime.now(UTC), last + timedelta(milliseconds=1))  # lines of one time are one action
            known = {name.casefold(): name for name, _ in self.names()}
            lines = [
                self._line(does, now, [known.get(name.casefold(), name) for name in names], places)
                for does, places, names in actions
            ]
            append_to_cast_file(self.file, lines)

    def _content(self) -> CastFile:
        """Content of the file, read again when somebody has written to it."""
        size = self.file.stat().st_size if self.file.exists() else 0
        if size != self._size:
            self._read, self._size = read_cast_file(self.file), size
        return self._read

    def _line(self, does: Deed, now: datetime, names: Sequence[str] = (), places: Iterable[int] = ()) -> CastLine:
        # as cast folders and reviews have them; a Japanese keyboard writes a wide space
        names = [unicodedata.normalize("NFC", name).replace("\u3000", " ") for name in names]
        items = self.figures.items
        try:
            return CastLine(
                time=now,
                reviewer=self.reviewer,
                does=does,
                names=tuple(sorted(set(names))),  # a set is one row, in whatever order it was typed
                figures=marks_of(items[place] for place in sorted(places)),
            )
        except ValidationError as error:
            raise InvalidActionError(faults_of(error).replace("Value error, ", "")) from error

    def _parts(self, standings: Sequence[Standing | None]) -> dict[object, list[int]]:
        """Places of the figures of each row."""
        found: dict[object, list[int]] = defaultdict(list)
        for place, standing in enumerate(standings):
            if standing is None:
                found[int(self.cluster_N[place])].append(place)
            else:
                found[standing.does, standing.names, standing.line if standing.does == "group" else 0].append(place)
        return found

    def _row(self, places: Sequence[int], standing: Standing | None) -> Row:
        return Row(tuple(places), standing.does if standing else None, standing.names if standing else ())

    def _with_proposals(self, rows: Sequence[Row], standings: Sequence[Standing | None]) -> list[Row]:
        """Open rows with the names of the nearest named figures: whole clusters of them, and the cast folder's."""
        known: dict[tuple[Names, int], list[int]] = defaultdict(list)
        for place, standing in enumerate(standings):
            if standing and standing.does == "name":
                known[standing.names, int(self.cluster_N[place])].append(place)
        vectors_ND = self.figures.vectors_ND
        means = [vectors_ND[places].mean(axis=0) for places in known.values()]
        means += [vector_D for vectors_RD in self.references.values() for vector_D in vectors_RD]
        of = [names for names, _ in known] + [(name,) for name, found in self.references.items() for _ in found]
        if not means or not rows:
            return list(rows)
        row_RD = np.stack([vectors_ND[list(row.figures)].mean(axis=0) for row in rows])
        return [
            self._proposed(row, likeness_K, of)
            for row, likeness_K in zip(rows, row_RD @ np.stack(means).T, strict=True)
        ]

    def _proposed(self, row: Row, likeness_K: NDArray[np.float32], of: Sequence[Names]) -> Row:
        best = int(likeness_K.argmax())
        others = [float(one) for one, names in zip(likeness_K, of, strict=True) if names != of[best]]
        here, there = 1 - float(likeness_K[best]), 1 - max(others, default=0.0)
        if here > REACH * (1 - self.least):
            return row
        near = bool(others) and here <= NEAR_REACH * (1 - self.least) and there >= NEAR_RATIO * here
        return Row(row.figures, row.does, proposal=of[best], likeness=1 - here, near=near)
