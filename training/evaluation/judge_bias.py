"""Bias and agreement of a judge: the effect of the order of the agents on its scores, and alpha over its repeats.

The effect of a position is fitted by least squares within the repeats of a window, where every agent is compared with
itself at other positions. Its p value is that of a permutation test: the orders of a window's repeats change places.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import krippendorff
import numpy as np
from numpy.typing import NDArray

PERMUTATIONS = 199

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedWindow:
    """Scores of one window for one criterion."""

    orders: tuple[tuple[int, ...], ...]
    """Per repeat, the position of each agent, from 0."""
    scores: tuple[tuple[int, ...], ...]
    """Per repeat, the score of each agent."""


def position_effects(windows: Sequence[JudgedWindow]) -> tuple[float, ...] | None:
    """Return the mean gain of a score at each position; None if no agent was seen at two positions."""
    repeated = [window for window in windows if len(set(window.orders)) > 1]
    return tuple(map(float, _fit(repeated, [window.orders for window in repeated]))) if repeated else None


def position_p_value(windows: Sequence[JudgedWindow], seed: int = 0) -> float | None:
    """Return the probability of effects as large as these if the order did not matter; None as `position_effects`."""
    repeated = [window for window in windows if len(set(window.orders)) > 1]
    if not repeated:
        return None
    drawn = random.Random(seed)
    spread = float(np.var(_fit(repeated, [window.orders for window in repeated])))
    as_large = sum(
        float(np.var(_fit(repeated, [drawn.sample(window.orders, len(window.orders)) for window in repeated])))
        >= spread - 1e-9
        for _ in range(PERMUTATIONS)
    )
    return (1 + as_large) / (1 + PERMUTATIONS)


def repeat_agreement(windows: Sequence[JudgedWindow]) -> float | None:
    """Return Krippendorff's ordinal alpha of the repeats; None if it is undefined."""
    units = [list(scores) for window in windows for scores in zip(*window.scores, strict=True) if len(scores) > 1]
    if len({score for unit in units for score in unit}) < 2:
        return None
    counts = np.array([[unit.count(score) for score in range(1, 11)] for unit in units])
    used = counts.any(axis=0)
    domain = np.arange(1, 11)[used]
    alpha = krippendorff.alpha(value_counts=counts[:, used], value_domain=domain, level_of_measurement="ordinal")
    return float(alpha)


def _fit(windows: Sequence[JudgedWindow], orders: Sequence[Sequence[tuple[int, ...]]]) -> Floats:
    """Return the effect of each position, of mean zero, with the mean of each agent and window taken out."""
    positions = len(windows[0].orders[0])
    normal, moment = np.zeros((positions, positions)), np.zeros(positions)
    for window, order in zip(windows, orders, strict=True):
        scores_RA = np.array(window.scores, float)
        shown_RAP = np.eye(positions)[np.array(order)]
        shown_RAP = shown_RAP - shown_RAP.mean(axis=0)
        normal += np.einsum("rap,raq->pq", shown_RAP, shown_RAP)
        moment += np.einsum("rap,ra->p", shown_RAP, scores_RA - scores_RA.mean(axis=0))
    return np.asarray(np.linalg.pinv(normal) @ moment)
