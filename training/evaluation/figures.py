"""Figures: means and slopes of measures with their 95% intervals, in `figures.json` and `figures.csv`.

The report and its tables are made from these records alone. The intervals are by bootstrap over games. Each draw takes
whole games, because the turns of a game depend on each other. With the sums s_g and counts n_g of the games drawn,

    mean  = sum_g s_g / sum_g n_g
    slope = sum_t (t - T) (m_t - M) / sum_t (t - T)^2       m_t: mean at turn t; T, M: means over the turns

so every turn's mean has the same weight, however many games reached that turn.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.core.atomic import replacing, write_json
from pipeline.core.records import Record
from training.evaluation.benchmark import Benchmark
from training.evaluation.measures import Measure, Metric

CSV_COLUMNS = ("kind", "agent", "metric", "game", "character", "turn", "value", "low", "high", "count")
DRAWS = 1000
SEED = 0
LEVEL = 0.95
Sums = NDArray[np.float64]
"""Array of sums, counts or means."""


class Figure(Record):
    """A mean by game, character or turn, or the overall mean if all three are empty."""

    agent: str
    metric: str
    game: str | None = None
    character: str | None = Field(None, description="protagonist of the games")
    turn: int | None = None
    value: float
    low: float | None = Field(
        None, description="bounds of the 95% interval, by bootstrap over games; null for one game"
    )
    high: float | None = None
    count: int = Field(description="number of measures in the mean")


class Slope(Record):
    """Change of a metric per turn, by least squares over the turns' numbers."""

    agent: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None


class AgentNote(Record):
    """An agent as the report shows it."""

    name: str
    kind: str = Field(description="such as `checkpoint`, `gc`, `folder`, `painted`")
    note: str = Field("", description="a sentence, such as the ablation it is, or what differs in its clips")
    is_untrained: bool = Field(False, description="a network of it has random weights: no value of it is the best")


class Figures(Record):
    """`figures.json`."""

    benchmark_sha256: str
    agents: tuple[AgentNote, ...]
    metrics: tuple[Metric, ...]
    figures: tuple[Figure, ...]
    slopes: tuple[Slope, ...] = ()
    has_random_networks: bool = Field(False, description="random networks measured: no value is marked as the best")
    notes: tuple[str, ...] = Field((), description="notes for the reader, such as a network with random weights")


@dataclass(frozen=True, eq=False)
class _Grid:
    """Sums and counts of an agent's measures by one metric. Rows are games and columns turns; 0 is the whole game."""

    sums_GT: Sums
    counts_GT: Sums


def make_figures(
    measures: Iterable[Measure],
    benchmark: Benchmark,
    agents: Sequence[AgentNote],
    metrics: Sequence[Metric],
    notes: Sequence[str] = (),
    *,
    has_random_networks: bool = False,
) -> Figures:
    """Return the figures of an evaluation: overall, by game, by character and by turn, and the slopes.

    Measures of other agents, games or metrics are left out, and so are metrics without measures.
    """
    grids = _grids(measures, benchmark, {agent.name for agent in agents}, {metric.name for metric in metrics})
    known = [metric for metric in metrics if any((agent.name, metric.name) in grids for agent in agents)]
    keys = [(agent.name, metric.name) for agent in agents for metric in known if (agent.name, metric.name) in grids]
    return Figures(
        benchmark_sha256=benchmark.sha256,
        agents=tuple(agents),
        metrics=tuple(known),
        figures=tuple(figure for key in keys for figure in _figures(key, grids[key], benchmark)),
        slopes=tuple(found for key in keys if (found := _slope(key, grids[key]))),
        has_random_networks=has_random_networks,
        notes=tuple(notes),
    )


def write_figures(folder: Path, figures: Figures) -> None:
    """Write `figures.json` and `figures.csv`, a row per mean and slope. DiskError if they cannot be written."""
    write_json(folder / "figures.json", figures.model_dump(mode="json"))
    with replacing(folder / "figures.csv") as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS, restval="")
        writer.writeheader()
        writer.writerows({"kind": "mean", **figure.model_dump()} for figure in figures.figures)
        writer.writerows({"kind": "slope", **found.model_dump()} for found in figures.slopes)


def _grids(
    measures: Iterable[Measure], benchmark: Benchmark, agents: set[str], metrics: set[str]
) -> dict[tuple[str, str], _Grid]:
    rows = {game.name: row for row, game in enumerate(benchmark.games)}
    shape = len(rows), 1 + max(len(game.panels) for game in benchmark.games)
    grids: dict[tuple[str, str], _Grid] = {}
    for measure in measures:
        if measure.agent in agents and measure.metric in metrics and measure.game in rows:
            grid = grids.setdefault((measure.agent, measure.metric), _Grid(np.zeros(shape), np.zeros(shape)))
            cell = rows[measure.game], measure.turn or 0
            grid.sums_GT[cell] += measure.value
            grid.counts_GT[cell] += 1
    return grids


def _figures(key: tuple[str, str], grid: _Grid, benchmark: Benchmark) -> Iterator[Figure]:
    whole = _Grid(grid.sums_GT.sum(axis=1), grid.counts_GT.sum(axis=1))
    everything = slice(None)
    yield from _figure(key, whole, everything)
    for row, game in enumerate(benchmark.games):
        yield from _figure(key, whole, [row], game=game.name)
    protagonists = [game.character for game in benchmark.games]
    for character in dict.fromkeys(filter(None, protagonists)):
        yield from _figure(key, whole, [row for row, name in enumerate(protagonists) if name == character],
                           character=character)  # fmt: skip
    for turn in range(1, grid.sums_GT.shape[1]):
        yield from _figure(key, _Grid(grid.sums_GT[:, turn], grid.counts_GT[:, turn]), everything, turn=turn)


def _figure(key: tuple[str, str], grid: _Grid, rows: slice | list[int], **part: Any) -> Iterator[Figure]:
    """Yield the mean over some games, unless they have no measure; `part` is the game, character or turn."""
    sums_G, counts_G = grid.sums_GT[rows], grid.counts_GT[rows]
    if count := int(counts_G.sum()):
        yield Figure(agent=key[0], metric=key[1], count=count, **part, **asdict(mean(sums_G, counts_G)))


def _slope(key: tuple[str, str], grid: _Grid) -> Slope | None:
    turns_T = np.arange(grid.sums_GT.shape[1], dtype=np.float64)[1:]
    found = slope(grid.sums_GT[:, 1:], grid.counts_GT[:, 1:], turns_T)
    return Slope(agent=key[0], metric=key[1], **asdict(found)) if found else None


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; no bounds from a single game."""

    value: float
    low: float | None = None
    high: float | None = None


@lru_cache(maxsize=16)
def weights(games: int) -> NDArray[np.float64]:
    """Return the number of times that each game is drawn, [DRAWS, G]; the same for the same number of games."""
    dice = np.random.default_rng(SEED)
    return dice.multinomial(games, np.full(games, 1 / games), size=DRAWS).astype(np.float64)


def mean(sums_G: Sums, counts_G: Sums) -> Estimate:
    """Return the mean over all values, each game given by the sum and the number of its values."""
    known = counts_G > 0
    sums_G, counts_G = sums_G[known], counts_G[known]
    value = float(sums_G.sum() / counts_G.sum())
    if len(sums_G) < 2:
        return Estimate(value)
    drawn = weights(len(sums_G))
    return _bounded(value, (drawn @ sums_G) / (drawn @ counts_G))


def slope(sums_GT: Sums, counts_GT: Sums, turns_T: Sums) -> Estimate | None:
    """Return the change per turn of the mean over games; None if fewer than two turns are known."""
    games, turns = counts_GT.any(axis=1), counts_GT.any(axis=0)
    sums_GT, counts_GT, turns_T = sums_GT[games][:, turns], counts_GT[games][:, turns], turns_T[turns]
    if len(turns_T) < 2:
        return None
    value = float(_slopes(sums_GT.sum(axis=0)[None], counts_GT.sum(axis=0)[None], turns_T)[0])
    if len(sums_GT) < 2:
        return Estimate(value)
    drawn = weights(len(sums_GT))
    return _bounded(value, _slopes(drawn @ sums_GT, drawn @ counts_GT, turns_T))


def _slopes(sums_BT: Sums, counts_BT: Sums, turns_T: Sums) -> Sums:
    """Return the slope of each row by least squares over the turns that it has."""
    known_BT = counts_BT > 0
    means_BT = np.where(known_BT, sums_BT / np.maximum(counts_BT, 1), 0.0)
    number_B1 = known_BT.sum(axis=1, keepdims=True)
    away_BT = np.where(known_BT, turns_T - (known_BT * turns_T).sum(axis=1, keepdims=True) / number_B1, 0.0)
    spread_B = (away_BT**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((away_BT * means_BT).sum(axis=1) / spread_B)


def _bounded(value: float, drawn: Sums) -> Estimate:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.nanpercentile(drawn, (tail, 100 - tail))
    return Estimate(value, float(low), float(high))
