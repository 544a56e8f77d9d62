"""Bootstrap over games: means and slopes over turns, with their 95 % intervals.

A game is drawn as a whole, since its turns depend on each other. With the sums s_g and counts n_g of the games drawn,

    mean  = sum_g s_g / sum_g n_g
    slope = sum_t (t - T) (m_t - M) / sum_t (t - T)^2       m_t: mean at turn t; T, M: means over the turns

so every turn's mean has one vote, whatever the number of games that reached it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 1000
SEED = 0
LEVEL = 0.95

Sums = NDArray[np.float64]
"""[G, T] sum of a metric per game and turn."""


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; no bounds from a single game."""

    value: float
    low: float | None = None
    high: float | None = None


def weights(games: int) -> NDArray[np.float64]:
    """Return the number of times that each game is drawn, [DRAWS, G]; the same for the same number of games."""
    dice = np.random.default_rng(SEED)
    return dice.multinomial(games, np.full(games, 1 / games), size=DRAWS).astype(np.float64)


def mean(sums_G: Sums, counts_G: Sums) -> Estimate:
    """Return the mean over all values, each game given by the sum and the number of its values."""
    known = counts_G > 0
    sums_G, counts_G = sums_G[known], counts_G[known]
    value = float(sums_G.sum() / counts_G.sum())
    if len(sums_G) < 2:
        return Estimate(value)
    drawn = weights(len(sums_G))
    return _bounded(value, (drawn @ sums_G) / (drawn @ counts_G))


def slope(sums_GT: Sums, counts_GT: Sums, turns_T: Sums) -> Estimate | None:
    """Return the change per turn of the mean over games; None if fewer than two turns are known."""
    games, turns = counts_GT.any(axis=1), counts_GT.any(axis=0)
    sums_GT, counts_GT, turns_T = sums_GT[games][:, turns], counts_GT[games][:, turns], turns_T[turns]
    if len(turns_T) < 2:
        return None
    value = float(_slopes(sums_GT.sum(axis=0)[None], counts_GT.sum(axis=0)[None], turns_T)[0])
    if len(sums_GT) < 2:
        return Estimate(value)
    drawn = weights(len(sums_GT))
    return _bounded(value, _slopes(drawn @ sums_GT, drawn @ counts_GT, turns_T))


def _slopes(sums_BT: Sums, counts_BT: Sums, turns_T: Sums) -> Sums:
    """Return the slope of each row by least squares over the turns that it has."""
    known_BT = counts_BT > 0
    means_BT = np.where(known_BT, sums_BT / np.maximum(counts_BT, 1), 0.0)
    number_B1 = known_BT.sum(axis=1, keepdims=True)
    away_BT = np.where(known_BT, turns_T - (known_BT * turns_T).sum(axis=1, keepdims=True) / number_B1, 0.0)
    spread_B = (away_BT**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((away_BT * means_BT).sum(axis=1) / spread_B)


def _bounded(value: float, drawn: Sums) -> Estimate:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.nanpercentile(drawn, (tail, 100 - tail))
    return Estimate(value, float(low), float(high))
