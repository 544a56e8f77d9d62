"""Benchmark of distillation: students are compared with their teacher turn by turn."""

from __future__ import annotations

import pytest

from benchmarks.distillation import Row, paired, summary
from training.phases.collapse import SIGNS


def row(game: str, asked: bool, level: int = 3, drawn: int = 3) -> Row:
    parts = dict.fromkeys(("as asked", "who", "where", "what"), asked)
    signs = dict.fromkeys(SIGNS, 0.25)
    return {"game": game, **parts, "level": level, "drawn": drawn, **signs}


def test_the_interval_is_of_differences_and_counts_stories_not_turns() -> None:
    hard = [row("one", asked=False), row("one", asked=False), row("two", asked=True), row("two", asked=True)]
    same = paired(hard, hard)  # the stories differ, the players do not
    assert (same["mean"], same["low"], same["high"], same["games"]) == (0, 0, 0, 2)
    worse = paired([*hard[:2], row("two", asked=False), hard[3]], hard)
    assert worse["mean"] == -0.25
    assert worse["low"] < -0.25 < worse["high"]
    with pytest.raises(ValueError, match="zip"):
        paired(hard, hard[:3])


def test_levels_drawn_are_told_by_the_level_asked() -> None:
    found = summary([row("one", asked=True, level=5, drawn=4), row("one", asked=False, level=1, drawn=1)] * 2)
    assert found["drawn by level"] == {1: 1.0, 5: 4.0}
    assert (found["as asked"], found["saturation"]) == (0.5, 0.25)
