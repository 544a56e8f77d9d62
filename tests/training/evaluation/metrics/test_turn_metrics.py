"""Metrics beside earlier turns, of games that lack turns: these are counted by their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from training.evaluation.benchmark import Panel
from training.evaluation.metrics.turn_metrics import place_values, style_values

EAST, NORTH, BETWEEN = (1.0, 0.0), (0.0, 1.0), (0.6, 0.8)


def panels(*places: tuple[int, str]) -> list[Panel]:
    return [Panel(game="g", turn=turn, EV=place, MD="run") for turn, place in places]


def test_a_return_is_counted_in_turns_since_the_last_visit() -> None:
    appearance_TD = np.array([EAST, NORTH, BETWEEN], np.float32)
    *others, back = place_values(panels((1, "sea"), (2, "hill"), (9, "Sea")), appearance_TD)
    assert others == [{}, {}]
    assert back == {"place_kept": 0.0, "place_kept_6_on": 0.0, "place_memory": pytest.approx(0.6 - 0.8)}


def test_style_is_compared_with_the_first_three_turns_that_are_there() -> None:
    appearance_TD = np.array([EAST, NORTH, BETWEEN], np.float32)
    first, second, third = style_values(panels((1, "sea"), (4, "sea"), (9, "sea")), appearance_TD)
    assert (first, second["style"], third["style"]) == ({}, 0.0, pytest.approx(0.6))
    assert style_values(panels((4, "sea"), (5, "sea"), (6, "sea")), appearance_TD) == [{}, {}, {}]
