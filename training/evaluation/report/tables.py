"""Tables of the report: means of every agent by metric and by character, next to the paper's rows.

The authors of the paper (AnimeGamer, arXiv 2504.01014) measured its rows on their own benchmark, films and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.evaluation.figures import Figure, Figures
from training.evaluation.measures import Metric

SOURCE = "arXiv 2504.01014"
PAPER_METRICS = ("clip_i", "dreamsim", "clip_t", "clip_t_e", "acc_f", "mae_f", "acc_s", "mae_s", "turn_seconds")
"""Metrics of the comparison with the baselines, in its order."""
ABLATION_METRICS = ("clip_i", "dreamsim", "acc_f", "mae_f")


@dataclass(frozen=True)
class PublishedRow:
    """A model of the paper with its figures by metric."""

    name: str
    values: dict[str, float]


def _row(name: str, metrics: tuple[str, ...], *values: float) -> PublishedRow:
    return PublishedRow(name, dict(zip(metrics, values, strict=True)))


COMPARISON = (
    _row("GSC", PAPER_METRICS, 0.7862, 0.5019, 0.3331, 0.3142, 0.3163, 0.8263, 0.6773, 0.5888, 50),
    _row("GFC", PAPER_METRICS, 0.7662, 0.5797, 0.3325, 0.3123, 0.2923, 1.0212, 0.6771, 0.5888, 63),
    _row("GC", PAPER_METRICS, 0.7960, 0.6416, 0.3339, 0.3158, 0.4249, 0.7223, 0.6779, 0.5888, 25),
    _row("AnimeGamer", PAPER_METRICS, 0.8132, 0.7403, 0.4161, 0.4012, 0.6744, 0.4238, 0.6773, 0.5872, 24),
)
"""Comparison with the baselines."""
TOKENIZER = (
    _row("full tokenizer", ABLATION_METRICS, 0.867, 0.793, 0.729, 0.403),
    _row("random frame", ABLATION_METRICS, 0.845, 0.450, 0.474, 0.562),
    _row("without warm-up", ABLATION_METRICS, 0.831, 0.511, 0.703, 0.458),
    _row("without motion scope", ABLATION_METRICS, 0.853, 0.689, 0.182, 1.219),
)
"""Ablations of the tokenizer alone, without the game model."""
ABLATIONS = (*TOKENIZER, _row("without adaptation", ABLATION_METRICS, 0.683, 0.494, 0.365, 0.847))


@dataclass(frozen=True)
class Cell:
    """A formatted value, and its interval or an empty text."""

    value: str = "–"
    interval: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Row:
    """A row: an agent, a published model, a metric or a character."""

    name: str
    cells: tuple[Cell, ...]
    is_published: bool = False


@dataclass(frozen=True)
class Table:
    """A table; `heads` are the columns after the first."""

    heads: tuple[str, ...]
    rows: tuple[Row, ...]


def overall(figures: Figures) -> dict[tuple[str, str], Figure]:
    """Return the overall means by agent and metric."""
    return {
        (each.agent, each.metric): each
        for each in figures.figures
        if each.game is None and each.character is None and each.turn is None
    }


def comparison(figures: Figures, names: Sequence[str], published: Sequence[PublishedRow]) -> Table:
    """Return a table with a row per agent and per published model, and the metrics that were measured as columns."""
    known = {metric.name: metric for metric in figures.metrics}
    metrics = [known[name] for name in names if name in known]
    means = overall(figures)
    best = {metric.name: _best(figures, metric, [means.get((agent.name, metric.name)) for agent in figures.agents])
            for metric in metrics}  # fmt: skip
    ours = [
        Row(agent.name, tuple(_cell(means.get((agent.name, metric.name)), best[metric.name]) for metric in metrics))
        for agent in figures.agents
    ]
    theirs = []
    for row in published:
        cells = (Cell(in_print(row.values.get(metric.name), digits_of(metric.name))) for metric in metrics)
        theirs.append(Row(row.name, tuple(cells), is_published=True))
    return Table(tuple(map(head_of, metrics)), (*ours, *(theirs if metrics else ())))


def by_metric(figures: Figures, metrics: Sequence[Metric]) -> Table:
    """Return a table with a row per metric and a column per agent."""
    means = overall(figures)
    rows = []
    for metric in metrics:
        found = [means.get((agent.name, metric.name)) for agent in figures.agents]
        best = _best(figures, metric, found)
        rows.append(Row(head_of(metric), tuple(_cell(figure, best) for figure in found)))
    return Table(tuple(agent.name for agent in figures.agents), tuple(rows))


def by_character(figures: Figures, metric: Metric) -> Table | None:
    """Return a table of one metric with a row per character and a column per agent; None if none is known."""
    found = {(each.agent, each.character): each for each in figures.figures if each.metric == metric.name}
    characters = sorted({character for _, character in found if character})
    rows = []
    for character in characters:
        row = [found.get((agent.name, character)) for agent in figures.agents]
        rows.append(Row(character, tuple(_cell(figure, _best(figures, metric, row)) for figure in row)))
    return Table(tuple(agent.name for agent in figures.agents), tuple(rows)) if rows else None


def head_of(metric: Metric) -> str:
    """Title of a metric with its direction, as in the paper's tables."""
    return f"{metric.title} {'↑' if metric.better == 'higher' else '↓'}"


def _best(figures: Figures, metric: Metric, found: Sequence[Figure | None]) -> float | None:
    """Return the best of at least two different values of trained agents; None if random networks measured."""
    trained = {agent.name for agent in figures.agents if not agent.is_untrained and not figures.has_random_networks}
    values = {figure.value for figure in found if figure and figure.agent in trained}
    return (max if metric.better == "higher" else min)(values) if len(values) > 1 else None


def _cell(figure: Figure | None, best: float | None) -> Cell:
    if figure is None:
        return Cell()
    has_interval = figure.low is not None and figure.high is not None
    digits = digits_of(figure.metric)
    low, high = (in_print(bound, min(digits, 3)) for bound in (figure.low, figure.high))
    return Cell(in_print(figure.value, digits), f"{low} to {high}" if has_interval else "", figure.value == best)


def digits_of(metric: str) -> int:
    """Digits after the point of a metric: four as in the paper, two of seconds, memory and scores."""
    return 2 if metric.endswith(("_seconds", "_gb")) or metric.startswith(("judge_", "study_")) else 4


def in_print(value: float | None, digits: int = 4) -> str:
    """Format a value with so many digits after the point, or with one from 10 on."""
    if value is None:
        return "–"
    said = f"{value:.{digits}f}" if abs(value) < 10 else f"{value:.1f}".removesuffix(".0")
    return said.replace("-", "−")
