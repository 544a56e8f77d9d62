"""Geometry of the charts in reports of datasets and evaluations: bars, lines and labels, which templates draw.

Charts are laid out 350 units wide, the width of a phone's screen, so that their labels stay readable there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 350.0, 190.0
TOP, BOTTOM = 34.0, 22.0
CURVE_LEFT, CURVE_RIGHT, CURVE_TOP = 44.0, 10.0, 12.0
SCENE_EDGES = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, math.inf)
SCOPE_STEPS_PER_DECADE = 12
SCOPE_FLOOR = 0.1
SCOPE_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
_VALUE_TICKS, _MOST_TURN_TICKS = 4, 10


@dataclass(frozen=True)
class Bar:
    """A rectangle with its description."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True)
class Label:
    """A piece of text at a place."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class SceneChart:
    """Scene lengths in bins that grow with the length."""

    bars: tuple[Bar, ...]
    counts: tuple[Label, ...]
    ticks: tuple[Label, ...]


@dataclass(frozen=True)
class ScopeChart:
    """Motion scopes on a logarithmic axis: kept clips below, the others stacked on them, the level edges across."""

    kept: tuple[Bar, ...]
    others: tuple[Bar, ...]
    edges: tuple[Label, ...]
    ticks: tuple[Label, ...]
    most: int


@dataclass(frozen=True)
class TurnValue:
    """A value at a turn, with the bounds of its interval if it has one, and its description."""

    turn: int
    value: float
    low: float | None
    high: float | None
    title: str


@dataclass(frozen=True)
class Point:
    """A point of a line with its description."""

    x: float
    y: float
    title: str


@dataclass(frozen=True)
class Line:
    """A curve; `band` is the path of its intervals, or empty."""

    path: str
    band: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class TurnChart:
    """Curves of values over turns, with labels of turns at the bottom and labels of values at the left."""

    lines: tuple[Line, ...]
    turns: tuple[Label, ...]
    values: tuple[Label, ...]


def scene_chart(lengths: Sequence[float]) -> SceneChart:
    """The histogram of scene lengths in seconds, without empty bins at the end."""
    bins = list(pairwise(SCENE_EDGES))
    counts = [sum(low <= length < high for length in lengths) for low, high in bins]
    while counts and not counts[-1]:
        counts.pop()
    step = WIDTH / max(len(counts), 1)
    tallest = max(counts, default=1)
    bars, labels, ticks = [], [], []
    for place, (count, (low, high)) in enumerate(zip(counts, bins, strict=False)):
        bar = _standing(place * step + 1.5, step - 3, count / tallest, f"scenes of {_span(low, high)}: {count}")
        bars.append(bar)
        labels.append(Label(round(bar.x + bar.width / 2, 2), bar.y - 5, str(count)))
        ticks.append(Label(place * step, HEIGHT - 6, f"{low:g}"))
    return SceneChart(tuple(bars), tuple(labels), tuple(ticks))


def scope_chart(kept: Sequence[float], others: Sequence[float], edges: Sequence[float]) -> ScopeChart:
    """The histogram of motion scopes in pixels per step; scopes below 0.1 px count in the first bin.

    With 12 bins per decade, a scope s is in the bin max(0, floor(1 + 12 * log10(s / 0.1 px))).
    """
    most_px = max([*kept, *others, *(1.3 * edge for edge in edges), 1.0])
    bins = math.floor(_scope_place(most_px)) + 1
    counts_kept, counts_others = _tally(kept, bins), _tally(others, bins)
    tallest = max(max(map(sum, zip(counts_kept, counts_others, strict=True))), 1)
    step = WIDTH / bins
    bars_kept, bars_others = [], []
    for place, (count, other) in enumerate(zip(counts_kept, counts_others, strict=True)):
        low, high = (_scope_at(place + side) if place + side else 0.0 for side in (0, 1))
        title = f"{low:.2g} to {high:.2g} px: {count} kept, {other} not"
        low_bar = _standing(place * step + 0.5, step - 1, count / tallest, title)
        bars_kept.append(low_bar)
        top = _standing(place * step + 0.5, step - 1, (count + other) / tallest, title)
        bars_others.append(Bar(top.x, top.y, top.width, top.height - low_bar.height, title))
    ticks = [Label(_scope_x(px, bins), HEIGHT - 6, f"{px:g}") for px in SCOPE_TICKS if px <= most_px]
    marks = [Label(_scope_x(edge, bins), 10.0 + 12 * (number % 2), f"{edge:.3g}") for number, edge in enumerate(edges)]
    return ScopeChart(tuple(bars_kept), tuple(bars_others), tuple(marks), tuple(ticks), tallest)


def turn_chart(curves: Sequence[Sequence[TurnValue]]) -> TurnChart:
    """Curves over at least two turns; the values of a curve come in the order of the turns."""
    given = [each for curve in curves for each in curve]
    turns = sorted({each.turn for each in given})
    bounds = [bound for each in given for bound in (each.value, each.low, each.high) if bound is not None]
    ticks = ticks_over(min(bounds), max(bounds))
    scale = _Scale(turns[0], turns[-1], ticks[0], ticks[-1])
    step = math.ceil(len(turns) / _MOST_TURN_TICKS)
    return TurnChart(
        tuple(_line(curve, scale) for curve in curves),
        tuple(Label(scale.x(turn), HEIGHT - 6, str(turn)) for turn in turns[::step]),
        tuple(Label(CURVE_LEFT - 6, scale.y(tick), f"{tick:.6g}".replace("-", "−")) for tick in ticks),
    )


def ticks_over(low: float, high: float) -> list[float]:
    """Round values that span a range, about four; two at least, and the span is never empty."""
    span = (high - low) or max(abs(high), 1.0) * 0.1
    rough = span / _VALUE_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def strip_path(spans: Iterable[tuple[float, float]]) -> str:
    """SVG path data of rectangles one unit high over (start, end) seconds; spans that touch become one rectangle."""
    merged: list[list[float]] = []
    for start, end in spans:
        if merged and start - merged[-1][1] < 1e-6:
            merged[-1][1] = end
        else:
            merged.append([start, end])
    return "".join(f"M{start:.6g} 0h{end - start:.6g}v1h-{end - start:.6g}z" for start, end in merged)


def time_ticks(seconds: float) -> list[Label]:
    """At most seven round times along a film, `x` in percent of its length."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600)
    step = next((step for step in steps if seconds / step <= 6), 7200)
    return [Label(100 * time / seconds, 0, clock(time)) for time in range(0, math.ceil(seconds), step)]


def clock(seconds: float) -> str:
    """`3725` -> `1:02:05`, `65` -> `1:05`."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def _standing(x: float, width: float, share: float, title: str) -> Bar:
    height = share * (HEIGHT - TOP - BOTTOM)
    return Bar(round(x, 2), round(HEIGHT - BOTTOM - height, 2), round(width, 2), round(height, 2), title)


def _span(low: float, high: float) -> str:
    return f"{low:g} s and more" if math.isinf(high) else f"{low:g} to {high:g} s"


def _tally(scopes: Iterable[float], bins: int) -> list[int]:
    counts = [0] * bins
    for scope in scopes:
        counts[max(0, math.floor(_scope_place(scope))) if scope > 0 else 0] += 1
    return counts


def _scope_place(scope_px: float) -> float:
    """Position in bins; bin 0 holds all scopes below SCOPE_FLOOR."""
    return 1 + math.log10(max(scope_px, SCOPE_FLOOR / 2) / SCOPE_FLOOR) * SCOPE_STEPS_PER_DECADE


def _scope_at(place: int) -> float:
    return SCOPE_FLOOR * math.pow(10, (place - 1) / SCOPE_STEPS_PER_DECADE)


def _scope_x(scope_px: float, bins: int) -> float:
    return round(_scope_place(scope_px) * WIDTH / bins, 2)


@dataclass(frozen=True)
class _Scale:
    """Places of turns and values in a chart of curves."""

    first: float
    last: float
    low: float
    high: float

    def x(self, turn: float) -> float:
        share = (turn - self.first) / (self.last - self.first)
        return round(CURVE_LEFT + share * (WIDTH - CURVE_LEFT - CURVE_RIGHT), 2)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - CURVE_TOP - BOTTOM), 2)


def _line(curve: Sequence[TurnValue], scale: _Scale) -> Line:
    points = tuple(Point(scale.x(each.turn), scale.y(each.value), each.title) for each in curve)
    banded = [(each.turn, each.low, each.high) for each in curve if each.low is not None and each.high is not None]
    upper = [(scale.x(turn), scale.y(high)) for turn, _, high in banded]
    lower = [(scale.x(turn), scale.y(low)) for turn, low, _ in banded]
    band = f"{_path([*upper, *lower[::-1]])}z" if len(banded) > 1 else ""
    return Line(_path([(point.x, point.y) for point in points]), band, points)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
