"""Bootstrap over games, and figures: means, intervals and slopes of tables with known truth."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from training.evaluation.benchmark import Benchmark, BenchmarkGame, Panel
from training.evaluation.figures import AgentNote, Figures, make_figures, mean, slope, write_figures
from training.evaluation.measures import Measure, Metric

METRICS = (Metric(name="clip_t", title="CLIP-T", meaning="m"), Metric(name="acc_f", title="ACC-F", meaning="m"))


def test_intervals_cover_the_truth_in_nineteen_of_twenty_tables() -> None:
    dice, covered = np.random.default_rng(7), 0
    for _ in range(200):
        # turns of a game share the game's own level, so turns drawn one by one would give too narrow an interval
        values_GT = 0.5 + dice.normal(0, 0.1, (40, 1)) + dice.normal(0, 0.05, (40, 10))
        found = mean(values_GT.sum(axis=1), np.full(40, 10.0))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.5 <= found.high
    assert 0.90 <= covered / 200 <= 0.985


def test_slopes_are_recovered_with_missing_turns_and_games_of_other_lengths() -> None:
    dice, turns_T = np.random.default_rng(3), np.arange(1.0, 21)
    values_GT = 0.8 - 0.02 * turns_T + dice.normal(0, 0.02, (30, 20))
    counts_GT = (dice.random((30, 20)) < 0.8).astype(float)
    counts_GT[:10, 10:] = 0
    found = slope(values_GT * counts_GT, counts_GT, turns_T)
    assert found is not None
    assert found.value == pytest.approx(-0.02, rel=0.1)
    assert found.low is not None
    assert found.high is not None
    assert found.low < -0.02 < found.high < 0


def test_a_single_game_has_no_interval_and_a_single_turn_no_slope() -> None:
    assert mean(np.array([3.0, 0.0]), np.array([2.0, 0.0])).low is None
    assert slope(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), np.array([1.0, 2.0])) is None


def test_figures_are_means_overall_by_game_by_character_and_by_turn(tmp_path: Path) -> None:
    figures = made()
    means = {(each.game, each.character, each.turn): each for each in figures.figures if each.metric == "clip_t"}
    assert means[None, None, None].value == pytest.approx((0.1 + 0.3 + 0.5 + 0.9) / 4)
    assert means["a", None, None].value == pytest.approx(0.2)
    assert means["a", None, None].low is None
    assert means[None, "Ponyo", None].value == pytest.approx(0.2)
    assert means[None, None, 2].value == pytest.approx(0.6)
    assert [each.name for each in figures.metrics] == ["clip_t"]  # nothing was measured of the other
    assert figures.slopes[0].value == pytest.approx(0.3)
    write_figures(tmp_path, figures)
    assert Figures.model_validate(json.loads((tmp_path / "figures.json").read_text()), strict=False) == figures
    with (tmp_path / "figures.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows].count("slope") == 1
    assert float(next(row for row in rows if row["turn"] == "2")["value"]) == pytest.approx(0.6)


def made() -> Figures:
    panels = {"a": "Ponyo", "b": "Lisa"}
    games = [
        BenchmarkGame(game, tuple(Panel(game=game, turn=turn, characters=(name,)) for turn in (1, 2)))
        for game, name in panels.items()
    ]
    values = {("a", 1): 0.1, ("a", 2): 0.3, ("b", 1): 0.5, ("b", 2): 0.9}
    measures = [
        Measure(agent="ours", game=game, turn=turn, metric="clip_t", value=value)
        for (game, turn), value in values.items()
    ]
    return make_figures(measures, Benchmark(tuple(games), "0"), [AgentNote(name="ours", kind="folder")], METRICS)
