"""Motion levels 1 to 5 of motion scopes, and the fit of the edges between the levels.

With the edges e_1 < e_2 < e_3 < e_4, in pixels per frame step, a scope s has the level

    level(s) = 1 + |{k : e_k < s}|                  a scope equal to an edge belongs to the level below it

Edges by quantiles: let v_1 < ... < v_n be the different scopes of a dataset and N(k) the number of clips with a scope
of at most v_k, N(0) = 0. Each level in turn gets the share nearest to an equal part of the clips that are left, while
every later level keeps at least one value. With c_0 = 0, for l = 1..4:

    c_l = argmin over c of |N(c) - N(c_(l-1)) - (N(n) - N(c_(l-1))) / (6 - l)|      c_(l-1) < c <= n - (5 - l)
    e_l = (v_(c_l) + v_(c_l + 1)) / 2

Edges are valid only for the optical-flow model and the background that the scopes were measured with, so one dataset
has one of each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import UserError
from pipeline.core.measurements import Motion
from pipeline.core.records import Verdict
from pipeline.core.store import Dataset, DatasetRecord, FilmFolder, LevelCalibration, StoreError

Edges = tuple[float, float, float, float]
"""Upper edges of levels 1 to 4 in pixels per step, strictly ascending."""

PUBLISHED_VALUES = (0.5, 2.5, 10.0, 15.0, 40.0)
"""Scope of each level in AnimeGamer's published table, pixels per step."""

PUBLISHED_EDGES: Edges = (1.5, 6.25, 12.5, 27.5)
"""Midpoints between those values; the edges themselves were never published."""

LEVELS = len(PUBLISHED_VALUES)


@dataclass(frozen=True)
class Calibration:
    """Edges fitted to a dataset, with the median scope and the number of clips of each level."""

    method: str
    flow_model: str
    background_px: float
    edges: Edges
    values: tuple[float, ...]
    counts: tuple[int, ...]

    def stored_in(self, record: DatasetRecord) -> DatasetRecord:
        """Return the record of the dataset with these edges in use."""
        kept = LevelCalibration(
            method=self.method, flow_model=self.flow_model, background_px=self.background_px, edges=self.edges
        )
        changes = {"calibration": kept, "edges": self.edges, "edges_from": kept.source, "level_values": self.values}
        return record.model_copy(update=changes)


def level_of(scope_px: float, edges: Sequence[float]) -> int:
    """Return the motion level, 1 to 5, of a scope in pixels per step.

    Raises:
        ValueError: the scope is negative or not a finite number.
    """
    if not (isfinite(scope_px) and scope_px >= 0):
        raise ValueError(f"a motion scope is a finite number of pixels, 0 or more; got {scope_px}")
    return 1 + bisect_left(edges, scope_px)


def fit_edges(scopes: Iterable[float], how: Literal["quantiles", "published"]) -> Edges:
    """Fit edges to scopes: `quantiles` makes the levels as equal in size as ties allow, `published` ignores the scopes.

    Equal scopes always get the same level. If many clips are still, level 1 holds them all and the other four levels
    share the rest equally. The equation is at the top of this file.

    Raises:
        UserError: fewer than five different scopes.
        ValueError: a scope is negative or not finite.
    """
    if how == "published":
        return PUBLISHED_EDGES
    # Differences below a millionth of a pixel are noise; rounding also keeps the edges readable.
    values, counts = np.unique(np.round(_checked(scopes), 6), return_counts=True)
    if len(values) < LEVELS:
        raise UserError(
            f"cannot fit {LEVELS} motion levels to {len(values)} distinct scopes; add films, or use the published edges"
        )
    clips_upto = np.cumsum(counts)
    cuts: list[int] = []  # c_l: number of different values at or below each edge
    for level in range(1, LEVELS):
        first, last = (cuts[-1] if cuts else 0) + 1, len(values) - (LEVELS - level)
        below = clips_upto[cuts[-1] - 1] if cuts else 0
        wanted = below + (clips_upto[-1] - below) / (LEVELS - level + 1)
        cuts.append(first + int(np.argmin(np.abs(clips_upto[first - 1 : last] - wanted))))
    one, two, three, four = (round(float(values[cut - 1] + values[cut]) / 2, 7) for cut in cuts)
    return one, two, three, four


def level_values(scopes: Iterable[float], edges: Sequence[float]) -> tuple[float, ...]:
    """Return a scope for each of the five levels, pixels per step, rising: the median of the level's clips.

    A level without clips has the published value if that is within its edges, otherwise the middle between them; for
    level 5 that is the last edge plus half the width of level 4.
    """
    highest = edges[-1] + (edges[-1] - edges[-2])
    bounds = zip((0.0, *edges), (*edges, highest), PUBLISHED_VALUES, strict=True)
    return tuple(
        float(np.median(members)) if members else _typical(level, *bound)
        for (level, members), bound in zip(enumerate(_by_level(scopes, edges), start=1), bounds, strict=True)
    )


def _typical(level: int, above: float, upto: float, published: float) -> float:
    is_inside = above < published and (level == LEVELS or published <= upto)
    return published if is_inside else (above + upto) / 2


def calibrate(dataset: Dataset, how: Literal["quantiles", "published"]) -> Calibration:
    """Fit edges to the scopes already measured; no optical flow is computed.

    Only clips kept by the verdicts count, or all clips of a film without verdicts.

    Raises:
        StoreError: no motion is measured yet, or films were measured with different optical-flow models or backgrounds.
        UserError: too few different scopes for five levels.
    """
    # the background of each measurement: the settings of a later plan may be others
    measured = [
        (row, record.ingredients["motion"]["background_px"])
        for folder in dataset.folders()
        if (record := folder.stage_record("motion"))
        for row in _counted(folder)
    ]
    if not measured:
        raise StoreError(f"{dataset.root}: no clip has its motion measured; run `animegamer build` first")
    kinds = sorted({(row.flow_model, background_px) for row, background_px in measured})
    if len(kinds) > 1:
        each = " and ".join(f"{model}, background below {px:g} px" for model, px in kinds)
        raise StoreError(
            f"{dataset.root}: motion was measured with {each}, but all films must share one measurement; build them "
            "again with one `--flow` and one `[motion] background_px`"
        )
    [(flow_model, background_px)] = kinds
    scopes = [row.scope_px for row, _ in measured]
    edges = fit_edges(scopes, how)
    counts = tuple(len(members) for members in _by_level(scopes, edges))
    return Calibration(how, flow_model, background_px, edges, level_values(scopes, edges), counts)


def _counted(folder: FilmFolder) -> list[Motion]:
    rows = folder.read("motion", Motion)
    if not folder.table_path("verdicts").exists():
        return rows
    kept = {verdict.clip_id for verdict in folder.read("verdicts", Verdict) if verdict.keep}
    return [row for row in rows if row.clip_id in kept]


def _by_level(scopes: Iterable[float], edges: Sequence[float]) -> list[list[float]]:
    levels: list[list[float]] = [[] for _ in range(LEVELS)]
    for scope in scopes:
        levels[level_of(scope, edges) - 1].append(scope)
    return levels


def _checked(scopes: Iterable[float]) -> npt.NDArray[np.float64]:
    values = np.asarray(list(scopes), np.float64)
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if len(wrong):
        raise ValueError(f"a motion scope is a finite number of pixels, 0 or more; got {wrong[0]}")
    return values
