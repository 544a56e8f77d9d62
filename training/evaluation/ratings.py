"""Ratings: the effect of the order in which agents are shown on their scores, and the agreement of raters.

A rating scores all agents side by side: a repeat of a judge, or an answer of a participant. The effect of a position is
fitted by least squares within each subject (a window or a game), where every agent is compared with itself at other
positions. The p value comes from a permutation test that exchanges the orders of a subject's ratings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import Field, ValidationError

from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, faults_of

PERMUTATIONS = 999
Summary = TypeVar("Summary", bound=Record)
NOTED_P_VALUE = 0.05
"""Probability below which an effect of the order is reported."""


@dataclass(frozen=True)
class Ratings:
    """Ratings of one subject by one criterion."""

    positions: tuple[tuple[int, ...], ...]
    """Per rating, the position at which each agent was shown, from 0."""
    scores: tuple[tuple[float, ...], ...]
    """Per rating, the score of each agent."""


@dataclass(frozen=True)
class PositionBias:
    """Effect of the order on scores."""

    effects: tuple[float, ...]
    """Mean gain of a score at each position."""
    p_value: float
    """Probability of effects as large as these if the order did not matter."""


def position_bias(subjects: Sequence[Ratings], seed: int = 0) -> PositionBias | None:
    """Return the effect of the order over subjects with equally many agents; None if it was always the same."""
    compared = [each for each in subjects if len(set(each.positions)) > 1]
    if not compared:
        return None
    count = len(compared[0].positions[0])
    # Row 0 of the moments is the observation, and the other rows are permutations. All share the normal matrix.
    normal_PP, moments_NP = np.zeros((count, count)), np.zeros((1 + PERMUTATIONS, count))
    generator = np.random.default_rng(seed)
    for each in compared:
        shown_RAP = np.eye(count)[np.array(each.positions)]
        shown_RAP = shown_RAP - shown_RAP.mean(axis=0)
        scores_RA = np.array(each.scores, float)
        gains_RRP = np.einsum("ra,sap->rsp", scores_RA - scores_RA.mean(axis=0), shown_RAP)
        ratings_R = np.arange(len(scores_RA))
        orders_NR = np.tile(ratings_R, (1 + PERMUTATIONS, 1))
        orders_NR[1:] = generator.permuted(orders_NR[1:], axis=1)
        normal_PP += np.einsum("rap,raq->pq", shown_RAP, shown_RAP)
        moments_NP += gains_RRP[ratings_R, orders_NR].sum(axis=1)
    effects_NP = moments_NP @ np.linalg.pinv(normal_PP)
    spread_N = effects_NP.var(axis=1)
    as_large = int((spread_N >= spread_N[0] - 1e-9).sum())  # itself included
    return PositionBias(tuple(map(float, effects_NP[0])), as_large / (1 + PERMUTATIONS))


def agreement(subjects: Sequence[Ratings]) -> float | None:
    """Return Krippendorff's ordinal alpha of the ratings; the units are the agents of each subject.

    None if no agent was rated twice, or all scores are equal.
    """
    units = [unit for each in subjects if len(each.scores) > 1 for unit in zip(*each.scores, strict=True)]
    counts = Counter(score for unit in units for score in unit)
    if len(counts) < 2:
        return None
    from nltk.metrics.agreement import AnnotationTask  # importing it takes a second

    ranks = dict(zip(sorted(counts), np.cumsum([counts[score] for score in sorted(counts)]), strict=True))
    middles = {score: float(ranks[score] - counts[score] / 2) for score in counts}

    def ordinal(one: float, other: float) -> float:
        return (middles[one] - middles[other]) ** 2

    data = [(rater, number, score) for number, unit in enumerate(units) for rater, score in enumerate(unit)]
    return float(AnnotationTask(data, distance=ordinal, missing_values=()).alpha())


class CriterionScores(Record):
    """Scores by one criterion, and their reliability."""

    metric: str
    scores: dict[str, float] = Field(description="mean score by agent")
    position_effects: tuple[float, ...] | None = Field(
        description="mean gain of a score at each position; null: no agent was at two"
    )
    order_p_value: float | None = Field(description="probability of such effects if the order did not matter")
    alpha: float | None = Field(description="Krippendorff's ordinal alpha over the ratings; null: undefined")


def scored(metric: str, scores: Mapping[str, float], subjects: Sequence[Ratings]) -> CriterionScores:
    """Return the mean scores of the agents with the reliability of their ratings."""
    bias = position_bias(subjects)
    return CriterionScores(
        metric=metric,
        scores=dict(scores),
        position_effects=bias.effects if bias else None,
        order_p_value=bias.p_value if bias else None,
        alpha=agreement(subjects),
    )


def read_scores(path: Path, kind: type[Summary], command: str) -> Summary | None:
    """Read a summary of scores; None if there is none. UserError if it is damaged; `command` writes it again."""
    if not path.exists():
        return None
    try:
        with disk_errors(path):
            return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path} is damaged ({faults_of(error)}); write it again with `{command}`") from error


def moved_by_order(criteria: Iterable[CriterionScores]) -> str:
    """Return the scores that depend on the order as text, such as `judge_oa (p = 0.001)`, or an empty text."""
    return ", ".join(
        f"{each.metric} (p = {each.order_p_value:.3f})"
        for each in criteria
        if each.order_p_value is not None and each.order_p_value < NOTED_P_VALUE
    )
