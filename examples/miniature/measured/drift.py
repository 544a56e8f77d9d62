"""Drift step: games of 50 turns, named by the judge ten turns at a time.

OUT/drift/NAME.json    `turns 1-10`, `turns 11-20`, ...: a figure with its 95 % interval for each field

A game plays two held-out stories in a row, the second one cut off. Raincoats and flags of the first story may stay in
the second, whose script does not know them: those fields are of use in single stories only, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from examples.miniature.measured.figures import figures_of
from examples.miniature.measured.games import Story, played, read_stories
from examples.miniature.measured.judge_network import Judge
from examples.miniature.measured.measured_models import (
    MAIN,
    SHORT,
    MeasuredModel,
    measure,
    measured_models,
)

GAMES, TURNS, AT_ONCE = 4, 50, 10
MODELS = (MAIN, SHORT)
FIELDS = ("as asked", "who", "where", "what", "level predicted", "level drawn", "states")


def measure_drift(out: Path, seed: int = 0) -> None:
    """Measure those of `MODELS` that are there and have not been measured."""
    games = list(long_games(read_stories(out, "dataset", "val")))

    def figures(model: MeasuredModel, judge: Judge) -> tuple[Any, str]:
        maker = model.maker()
        shown = [list(played(game, maker, seed + number)) for number, game in enumerate(games)]
        found = {}
        for start in range(0, TURNS, AT_ONCE):
            part = [turn for game in shown for turn in game[start : start + AT_ONCE]]
            every = figures_of(part, judge, maker.window_turns)
            found[f"turns {start + 1}-{start + AT_ONCE}"] = {field: every[field] for field in FIELDS}
        tens = ", ".join(f"{each['as asked']['mean']:.1%}" for each in found.values())
        return found, f"turns as asked, ten by ten: {tens}"

    measure(out, "drift", seed, (model for model in measured_models(out) if model.name in MODELS), figures)


def long_games(stories: Sequence[Story]) -> Iterator[Story]:
    """Yield games of `TURNS` turns, each of two stories in a row."""
    for game in range(GAMES):
        first, second = (stories[(2 * game + number) % len(stories)] for number in (0, 1))
        yield [replace(turn, game=game) for turn in (*first, *second)[:TURNS]]
