"""Votes of a film's keyframes on its black borders, and the stretches of film whose borders are larger.

A row or column is border if it is black on every keyframe bright enough to vote (one exception is allowed), and if the
black area ends in a sharp line. Bars do; the dark edges of a night scene or a vignette fade out.

A stretch with larger borders is a run of votes without picture in these borders, such as a letterboxed opening. Bars
lie on both sides alike and stay when the picture changes; a dark doorway does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.config import CropSettings
from pipeline.core.records import Film
from pipeline.stages.overlays.borders import Borders, borders_of, column_levels, row_levels
from pipeline.video.containers import Picture
from pipeline.video.scaling import gray_codes

FORGIVING = 20
"""Least number of votes with which one keyframe may be bright in a border."""
CLEARLY = 0.02
"""Least difference of two borders, as a share of the side, to count as different."""
FEW = 4
"""Number of votes below which a title card or a logo on black may pass for the picture inside borders."""
PART = 0.15
"""Share of the votes above which a part of the film is worth a warning."""
STRETCH_PICTURES, STRETCH_SECONDS = 3, 10.0
"""Least number of different pictures with the same borders in a stretch, and least time between the first and last."""
DIFFERENT = 6.0
"""Mean difference of the levels of two pictures, 0..255, from which they are different."""


@dataclass(frozen=True)
class Vote:
    """Levels of the rows and columns of a picture, 0..255."""

    seconds: float
    rows_H: NDArray[np.float32]
    columns_W: NDArray[np.float32]

    @classmethod
    def of(cls, seconds: float, picture_HWC: Picture, film: Film, settings: CropSettings) -> Vote | None:
        """Return the vote of an upright picture; None if it is too dark for one, or of another size."""
        # HDR codes dark levels differently from SDR; borders are gray, so a table of gray codes is enough
        gray_HW = cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2GRAY)
        luma_HW = np.asarray(cv2.LUT(gray_HW, gray_codes(film.transfer)), np.uint8)
        if luma_HW.shape[::-1] != film.upright_size or luma_HW.mean() < settings.dark_frame_luma:
            return None
        return cls(seconds, row_levels(luma_HW), column_levels(luma_HW))

    def borders(self, black_luma: float) -> Borders:
        """Return the borders of this picture alone."""
        return borders_of(self.rows_H, self.columns_W, black_luma)

    def is_unlike(self, other: Vote) -> bool:
        """Return True if the other picture shows something else."""
        pairs = ((self.rows_H, other.rows_H), (self.columns_W, other.columns_W))
        return max(float(np.abs(one - two).mean()) for one, two in pairs) > DIFFERENT


@dataclass(frozen=True)
class BorderStretch:
    """Votes in a row, `first` to `last`, with larger borders than the film."""

    borders: Borders
    first: int
    last: int


@dataclass(frozen=True)
class Ballot:
    """Votes of a film in order of time, at least one.

    Attributes:
        own_F4: borders of each vote alone, pixels.
        least_4: least differences of borders that count, pixels.
    """

    votes: tuple[Vote, ...]
    black_luma: float
    own_F4: NDArray[np.int64]
    least_4: NDArray[np.float64]

    @classmethod
    def of(cls, votes: list[Vote], black_luma: float) -> Ballot:
        """Count the borders of every vote."""
        height, width = len(votes[0].rows_H), len(votes[0].columns_W)
        own_F4 = np.array([vote.borders(black_luma) for vote in votes])
        return cls(tuple(votes), black_luma, own_F4, np.maximum(4, CLEARLY * np.array([width, height] * 2)))

    def borders(self, first: int = 0, last: int | None = None) -> Borders:
        """Return the borders common to the votes `first` to `last`, or to all."""
        votes = self.votes[first : None if last is None else last + 1]
        forgiven = 1 if len(votes) >= FORGIVING else 0
        rows_H, columns_W = (
            np.sort(np.array(levels), axis=0)[-1 - forgiven]
            for levels in ([vote.rows_H for vote in votes], [vote.columns_W for vote in votes])
        )
        return borders_of(rows_H, columns_W, self.black_luma)

    def stretches(self, common: Borders) -> list[BorderStretch]:
        """Return the stretches with larger borders than the common ones, in order of time."""
        free_F = np.ones(len(self.votes), bool)
        found = []
        while len(part := np.flatnonzero(self._largest_part(common, free_F))) >= STRETCH_PICTURES:
            inside_F = (self.own_F4 >= np.median(self.own_F4[part], axis=0) - self.least_4).all(axis=1) & free_F
            free_F[part] = False
            for run in _runs(inside_F):
                same = part[(part >= run.start) & (part < run.stop)]
                if self._is_long(same):
                    free_F[run] = False
                    first, last = int(same[0]), int(same[-1])
                    found.append(BorderStretch(self.borders(first, last), first, last))
        return sorted(found, key=lambda stretch: stretch.first)

    def warnings(self, common: Borders, stretches: list[BorderStretch]) -> list[str]:
        """Return warnings: few votes, picture outside the crop, a part with larger borders, a small area left."""
        votes, sides = self.votes, np.array(common)
        texts = []
        if len(votes) < FEW and any(side // 2 for side in common):
            texts.append(
                f"black borders found on only {len(votes)} keyframe(s): look at its clips; [crop] enabled = false "
                "keeps all"
            )
        outside = np.flatnonzero((self.own_F4 < sides - self.least_4).any(axis=1))
        if len(outside):
            texts.append(
                f"{len(outside)} of {len(votes)} keyframes show picture outside the crop, {self._places(outside)}"
            )
        free_F = np.ones(len(votes), bool)
        for stretch in stretches:
            free_F[stretch.first : stretch.last + 1] = False
        part = np.flatnonzero(self._largest_part(common, free_F))
        if len(part) > PART * len(votes):
            larger = Borders(*(int(side) for side in np.median(self.own_F4[part], axis=0)))
            texts.append(
                f"{len(part)} of {len(votes)} keyframes have larger black borders (left {larger.left}, top "
                f"{larger.top}, right {larger.right}, bottom {larger.bottom} px), {self._places(part)}; clips from "
                "there will show them"
            )
        kept = np.prod(1 - (sides[:2] + sides[2:]) / (len(votes[0].columns_W), len(votes[0].rows_H)))
        if kept < 0.5:
            texts.append(f"only {kept:.0%} of the picture lies inside the black borders")
        return texts

    def _largest_part(self, common: Borders, free_F: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the largest group of free votes with equal borders above the common ones, symmetric as bars are."""
        own_F4 = self.own_F4
        larger_F = (own_F4 > np.array(common) + self.least_4).any(axis=1)
        even_F = (np.abs(own_F4[:, :2] - own_F4[:, 2:]) <= self.least_4[:2]).all(axis=1)
        chosen_F = free_F & larger_F & even_F
        groups = (chosen_F & (np.abs(own_F4 - own) <= 2).all(axis=1) for own in np.unique(own_F4[chosen_F], axis=0))
        return max(groups, key=lambda group: int(group.sum()), default=np.zeros(len(own_F4), bool))

    def _is_long(self, indices: NDArray[np.intp]) -> bool:
        """Return True if these votes show several pictures, over enough time."""
        different: list[Vote] = []
        for vote in (self.votes[index] for index in indices):
            if all(vote.is_unlike(other) for other in different):
                different.append(vote)
        lasts = self.votes[indices[-1]].seconds - self.votes[indices[0]].seconds if len(indices) else 0.0
        return len(different) >= STRETCH_PICTURES and lasts >= STRETCH_SECONDS

    def _places(self, indices: NDArray[Any]) -> str:
        first, last = (timedelta(seconds=round(self.votes[index].seconds)) for index in (indices[0], indices[-1]))
        return f"near {first}" if first == last else f"between about {first} and {last}"


def _runs(chosen_F: NDArray[np.bool_]) -> Iterator[slice]:
    """Yield the runs of true values."""
    start = 0
    for value, members in groupby(chosen_F.tolist()):
        end = start + len(list(members))
        if value:
            yield slice(start, end)
        start = end
