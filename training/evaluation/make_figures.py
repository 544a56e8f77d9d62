"""Making of figures: a table of measures becomes means and slopes; `figures.json` and `figures.csv` are written."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core.atomic import replacing, write_json
from training.evaluation.benchmark import Benchmark
from training.evaluation.bootstrap import Sums, mean, slope
from training.evaluation.figures import AgentNote, Figure, Figures, Slope
from training.evaluation.measures import Measure, Metric

CSV_COLUMNS = ("kind", "agent", "metric", "game", "character", "turn", "value", "low", "high", "count")


@dataclass(frozen=True, eq=False)
class _Grid:
    """Measures of an agent and a metric: sums and counts per game (rows) and turn (columns; 0: the whole game)."""

    sums_GT: Sums
    counts_GT: Sums


def make_figures(
    measures: Iterable[Measure],
    benchmark: Benchmark,
    agents: Sequence[AgentNote],
    metrics: Sequence[Metric],
    notes: Sequence[str] = (),
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
        notes=tuple(notes),
    )


def write_figures(folder: Path, figures: Figures) -> None:
    """Write `figures.json` and `figures.csv`, a row per mean and slope.

    Raises:
        DiskError: they cannot be written.
    """
    write_json(folder / "figures.json", figures.model_dump(mode="json"))
    with (
        replacing(folder / "figures.csv") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
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


def _figure(
    key: tuple[str, str],
    grid: _Grid,
    rows: slice | list[int],
    game: str | None = None,
    character: str | None = None,
    turn: int | None = None,
) -> Iterator[Figure]:
    """Yield the mean over some games, unless they have no measure."""
    sums_G, counts_G = grid.sums_GT[rows], grid.counts_GT[rows]
    if counts_G.sum() == 0:
        return
    found = mean(sums_G, counts_G)
    agent, metric = key
    yield Figure(
        agent=agent,
        metric=metric,
        game=game,
        character=character,
        turn=turn,
        value=found.value,
        low=found.low,
        high=found.high,
        count=int(counts_G.sum()),
    )


def _slope(key: tuple[str, str], grid: _Grid) -> Slope | None:
    turns_T = np.arange(grid.sums_GT.shape[1], dtype=np.float64)[1:]
    found = slope(grid.sums_GT[:, 1:], grid.counts_GT[:, 1:], turns_T)
    agent, metric = key
    if found is None:
        return None
    return Slope(agent=agent, metric=metric, value=found.value, low=found.low, high=found.high)
