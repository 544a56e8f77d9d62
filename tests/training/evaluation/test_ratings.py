"""Ratings: planted effects of a position are recovered, p values are those of all permutations, alpha is right."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest

from training.evaluation.ratings import Ratings, agreement, position_bias

AGENTS = 4


def rated(seed: int, ratings: int, score: Callable[[random.Random, int, int], float]) -> Ratings:
    """Ratings of a subject whose agents rotate over the positions, from a random order on."""
    dice = random.Random(seed)
    start = dice.sample(range(AGENTS), AGENTS)
    positions = tuple(tuple((place + turn) % AGENTS for place in start) for turn in range(ratings))
    scores = tuple(tuple(score(dice, agent, row[agent]) for agent in range(AGENTS)) for row in positions)
    return Ratings(positions, scores)


def test_a_planted_effect_is_recovered_whatever_the_agents_and_with_ratings_missing() -> None:
    def score(_: random.Random, agent: int, position: int) -> float:
        return 2 * agent + (1, 0, 0, -1)[position]

    found = position_bias([rated(seed, ratings, score) for seed, ratings in enumerate((4, 3, 2, 4, 1, 8))])
    assert found is not None
    assert found.effects == pytest.approx((1, 0, 0, -1))
    assert found.p_value < 0.01


def test_chance_alone_is_seldom_called_an_effect() -> None:
    def score(dice: random.Random, agent: int, position: int) -> float:
        return dice.randint(1, 10)

    found = [position_bias([rated(40 * study + seed, 4, score) for seed in range(12)]) for study in range(40)]
    values = [bias.p_value for bias in found if bias]
    assert len(values) == 40
    assert sum(value < 0.05 for value in values) <= 6  # 2 are expected
    assert 0.3 < sum(values) / 40 < 0.7


def test_the_p_value_is_that_of_all_permutations() -> None:
    def score(dice: random.Random, agent: int, position: int) -> float:
        return dice.randint(1, 5) + (1 if position == 0 else 0)

    subjects = [rated(seed, 3, score) for seed in (3, 4, 5)]
    spreads = []
    for orders in product(permutations(range(3)), repeat=3):
        rows, gains = [], []
        for each, order in zip(subjects, orders, strict=True):
            shown = np.eye(AGENTS)[np.array(each.positions)][list(order)]
            scores = np.array(each.scores)
            rows.append((shown - shown.mean(axis=0)).reshape(-1, AGENTS))
            gains.append((scores - scores.mean(axis=0)).reshape(-1))
        effects, *_ = np.linalg.lstsq(np.concatenate(rows), np.concatenate(gains), rcond=None)
        spreads.append(float(np.var(effects)))
    assert len(spreads) == 6**3
    exact = sum(spread >= spreads[0] - 1e-9 for spread in spreads) / len(spreads)
    found = position_bias(subjects)
    assert found is not None
    assert 0.1 < exact < 0.9
    assert found.p_value == pytest.approx(exact, abs=0.05)


def test_one_rating_or_one_order_says_nothing_of_positions() -> None:
    assert position_bias([]) is None
    assert position_bias([Ratings(((0, 1),), ((3, 5),))]) is None
    assert position_bias([Ratings(((0, 1), (0, 1)), ((3, 5), (4, 5)))]) is None


def test_agreement_is_krippendorffs_ordinal_alpha() -> None:
    # three raters of two agents in two games
    subjects = [Ratings(((0, 1),) * 3, ((1, 2), (1, 2), (1, 2))), Ratings(((0, 1),) * 3, ((2, 1), (2, 1), (1, 2)))]
    # by hand: units 1 1 1, 2 2 2, 2 2 1 and 1 1 2 give two coincidences of 1 with 2 (o12 = 2), where n1 n2 / (n - 1) =
    # 6 * 6 / 11 are expected; with two values their distance cancels
    assert agreement(subjects) == pytest.approx(1 - 2 / (36 / 11))
    assert agreement(subjects[:1]) == pytest.approx(1)
    assert agreement([Ratings(((0, 1),), ((1, 2),))]) is None, "rated once"
    assert agreement([Ratings(((0, 1),) * 2, ((5, 5), (5, 5)))]) is None, "all equal"
