"""Curves by turn: geometry of a chart of one metric, a line and a band of intervals per agent, drawn by the template.

Charts are 350 units wide, the width of a phone's screen, so that their labels stay readable there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from training.evaluation.figures import Figure, Figures
from training.evaluation.measures import Metric
from training.evaluation.report.tables import head_of, in_print

WIDTH, HEIGHT = 350.0, 200.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 10.0, 12.0, 24.0
_TICKS = 4
_MOST_TURN_LABELS = 10


@dataclass(frozen=True)
class Mark:
    """A label at a place of an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Point:
    """A point of a line with its description."""

    x: float
    y: float
    title: str


@dataclass(frozen=True)
class Line:
    """The curve of an agent; `band` is the path of its intervals, empty where there are none."""

    agent: str
    number: int
    path: str
    band: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class CurveChart:
    """A chart of one metric over the turns."""

    title: str
    meaning: str
    lines: tuple[Line, ...]
    turns: tuple[Mark, ...]
    values: tuple[Mark, ...]
    slopes: tuple[str, ...]
    """The change per turn of each agent, in words."""


def curve_charts(figures: Figures) -> list[CurveChart]:
    """Return a chart for every metric that is known at two turns at least, in the order of the metrics."""
    by_metric: dict[str, list[Figure]] = {}
    for figure in figures.figures:
        if figure.turn is not None:
            by_metric.setdefault(figure.metric, []).append(figure)
    return [
        _chart(figures, metric, by_metric[metric.name])
        for metric in figures.metrics
        if len({figure.turn for figure in by_metric.get(metric.name, ())}) > 1
    ]


def _chart(figures: Figures, metric: Metric, points: Sequence[Figure]) -> CurveChart:
    turns = sorted({figure.turn for figure in points if figure.turn is not None})
    bounds = [bound for each in points for bound in (each.value, each.low, each.high) if bound is not None]
    ticks = ticks_over(min(bounds), max(bounds))
    scale = _Scale(turns[0], turns[-1], ticks[0], ticks[-1])
    lines = []
    for number, agent in enumerate(figures.agents):
        own = sorted((each for each in points if each.agent == agent.name), key=lambda each: each.turn or 0)
        if own:
            lines.append(_line(agent.name, number, own, scale))
    step = math.ceil(len(turns) / _MOST_TURN_LABELS)
    return CurveChart(
        head_of(metric),
        metric.meaning,
        tuple(lines),
        tuple(Mark(scale.x(turn), str(turn)) for turn in turns[::step]),
        tuple(Mark(scale.y(tick), f"{tick:.6g}".replace("-", "−")) for tick in ticks),
        tuple(_slopes(figures, metric.name)),
    )


@dataclass(frozen=True)
class _Scale:
    first: float
    last: float
    low: float
    high: float

    def x(self, turn: float) -> float:
        return round(LEFT + (turn - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT), 2)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 2)


def _line(agent: str, number: int, own: Sequence[Figure], scale: _Scale) -> Line:
    points = []
    for each in own:
        said = f"{agent}, turn {each.turn}: {in_print(each.value)}"
        if each.low is not None:
            said += f" ({in_print(each.low)} to {in_print(each.high)})"
        points.append(Point(scale.x(each.turn or 0), scale.y(each.value), said))
    banded = [(each.turn or 0, each.low, each.high) for each in own if each.low is not None and each.high is not None]
    upper = [(scale.x(turn), scale.y(high)) for turn, _, high in banded]
    lower = [(scale.x(turn), scale.y(low)) for turn, low, _ in banded]
    band = f"{_path([*upper, *lower[::-1]])}z" if len(banded) > 1 else ""
    return Line(agent, number, _path([(point.x, point.y) for point in points]), band, tuple(points))


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _slopes(figures: Figures, metric: str) -> list[str]:
    said = []
    for slope in figures.slopes:
        if slope.metric == metric:
            is_bounded = slope.low is not None and slope.high is not None
            bounds = f" ({_signed(slope.low)} to {_signed(slope.high)})" if is_bounded else ""
            said.append(f"{slope.agent} {_signed(slope.value)}{bounds}")
    return said


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{round(value, 9):+.2g}".replace("-", "−")


def ticks_over(low: float, high: float) -> list[float]:
    """Return round values that span a range, about four; two at least, and the span is never empty."""
    span = (high - low) or max(abs(high), 1.0) * 0.1
    rough = span / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]
