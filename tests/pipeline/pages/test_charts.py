"""Geometry of the charts: every scene and clip is counted, and rectangles match the numbers."""

from __future__ import annotations

import pytest

from pipeline.pages.charts import HEIGHT, WIDTH, clock, scene_chart, scope_chart, ticks_over, time_ticks


def test_every_scene_is_in_one_bin() -> None:
    chart = scene_chart([0.2, 0.5, 0.99, 1.0, 3.9, 4.0, 300.0])
    counts = [int(label.text) for label in chart.counts]
    assert counts == [1, 2, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1]
    assert chart.bars[-1].x + chart.bars[-1].width <= WIDTH
    assert chart.bars[1].height == 2 * chart.bars[0].height
    assert chart.bars[-1].title == "scenes of 32 s and more: 1"


def test_scopes_stand_between_their_edges() -> None:
    edges = (1.5, 6.25, 12.5, 27.5)
    chart = scope_chart(kept=[0.0, 3.0, 3.0], others=[3.0, 20.0], edges=edges)

    tall = max(chart.kept, key=lambda bar: bar.height)
    assert chart.edges[0].x < tall.x < chart.edges[1].x
    on_top = max(chart.others, key=lambda bar: bar.height)
    moved = [bar for bar in chart.others if bar.height]
    assert [chart.edges[2].x < bar.x < chart.edges[3].x for bar in moved] == [False, True]
    assert moved[0].y + moved[0].height == pytest.approx(tall.y, abs=0.02), "the others are stacked on the kept ones"
    assert on_top.y >= 0
    assert chart.kept[0].height > 0, "a still clip counts in the first bin"
    assert chart.most == 3
    assert [label.text for label in chart.edges] == ["1.5", "6.25", "12.5", "27.5"]
    assert all(0 <= tick.x <= WIDTH for tick in chart.ticks)
    assert scene_chart([]).bars == ()
    assert all(bar.y + bar.height <= HEIGHT for bar in chart.kept)
    assert scope_chart(kept=[10.0], others=[], edges=()).kept[-1].height > 0, "a power of ten begins a bin"


def test_ticks_are_few_round_and_inside() -> None:
    for seconds in (0.5, 7.0, 125.0, 596.5, 7200.0, 36000.0):
        ticks = time_ticks(seconds)
        assert 1 <= len(ticks) <= 7
        assert ticks[0].x == 0
        assert all(tick.x <= 100 for tick in ticks)
    assert [clock(seconds) for seconds in (0, 59.6, 3725.2)] == ["0:00", "1:00", "1:02:05"]
    assert [tick.text for tick in time_ticks(125.0)] == ["0:00", "0:30", "1:00", "1:30", "2:00"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.5, 0.5), (0.0, 0.0), (-3e-7, 2e-7), (1.2e9, 3.4e9)])
def test_ticks_are_round_and_span_the_values(low: float, high: float) -> None:
    ticks = ticks_over(low, high)
    assert 2 <= len(ticks) <= 7
    slack = 1e-9 * max(abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
