"""Confidence intervals of a share: Wilson's score interval with the effective size of a simple or stratified sample.

Wilson's interval stays inside 0 to 1 and covers close to 95 % also for shares near 1, where the plain normal interval
covers far less (Brown, Cai and DasGupta 2001, Statistical Science 16:101). In samples of a design, the effective size
takes the place of the size; of seven forms Franco, Little, Louis and Slud (2019, Journal of Survey Statistics
and Methodology 7:334) recommend Wilson's.

The effective size follows from the variance of a ratio over strata drawn without replacement (Cochran, Sampling
Techniques, 6.11), so it also holds where only some clips of the sample count: those with an answer, or each name on
screen. It is never taken above Kish's, the size by the weights alone: with few errors the estimated variance is noise,
and often far too small. A simple sample of a large data set gives Wilson's interval unchanged; a sample of all clips
gives the share itself. The statistical packages with these designs are in R, or bring SciPy and more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pipeline.core.records import Record

CONFIDENCE = 0.95
Counts_N = NDArray[np.float64]
"""A number for each of N clips."""
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


class Share(Record):
    """Estimated share of a whole data set, with the ends of its 95 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Stratum:
    """Part of a sample that was drawn at random from one stratum."""

    hits_N: Counts_N
    """Hits of each clip of the sample."""
    tries_N: Counts_N
    """Tries of each clip, at least its hits; 0: it does not count."""
    population: float = math.inf
    """Clips in the stratum; infinite where only a single stratum is sampled and its size does not matter."""

    @property
    def weight(self) -> float:
        """Clips of the data set for which one clip of the sample stands."""
        return self.population / len(self.tries_N) if math.isfinite(self.population) else 1.0

    @property
    def unseen(self) -> float:
        """Share of the stratum outside the sample."""
        return 1 - len(self.tries_N) / self.population


def estimated(strata: Sequence[Stratum], missing: int = 0) -> Share | None:
    """Return hits over tries in the whole population; None if nothing was tried.

    Args:
        strata: the sample.
        missing: clips of the data set in strata of which no clip was seen. All of them may be hits, or none: the
            interval holds both.
    """
    drawn = [stratum for stratum in strata if len(stratum.tries_N)]
    tries = sum(stratum.weight * stratum.tries_N.sum() for stratum in drawn)
    if not tries:
        return None
    share = float(sum(stratum.weight * stratum.hits_N.sum() for stratum in drawn) / tries)
    low, high = wilson(share, _effective_size(drawn, share, float(tries)))
    seen = float(tries / (tries + missing))
    return Share(share=share, low=low * seen, high=high * seen + 1 - seen)


def wilson(share: float, size: float, deviations: float = _Z) -> tuple[float, float]:
    """Return Wilson's score interval of a share of `size` tries; an infinite size gives the share itself.

    Args:
        share: hits over tries.
        size: number of tries, or the effective one.
        deviations: standard deviations to each side; by default those of 95 % of the normal distribution.
    """
    if math.isinf(size):
        return share, share
    centre = share + deviations**2 / (2 * size)
    reach = deviations * math.sqrt(share * (1 - share) / size + (deviations / (2 * size)) ** 2)
    scale = 1 + deviations**2 / size
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)


def _effective_size(strata: Sequence[Stratum], share: float, tries: float) -> float:
    """Return the size of a simple random sample that would tell as much."""
    by_weights = sum(stratum.unseen * stratum.weight**2 * float(stratum.tries_N.sum()) for stratum in strata)
    if not by_weights:
        return math.inf  # every clip was seen
    size = sum(len(stratum.tries_N) for stratum in strata)
    variance = sum(_variance(stratum, share) for stratum in strata) / tries**2
    if not variance:
        return tries**2 / by_weights
    return min(tries**2 / by_weights, share * (1 - share) / variance * size / (size - 1))


def _variance(stratum: Stratum, share: float) -> float:
    """Return the variance of the stratum's weighted sum of hits beyond the share; 0 for a single clip."""
    size = len(stratum.tries_N)
    if size < 2:
        return 0.0
    spread = float(np.var(stratum.hits_N - share * stratum.tries_N, ddof=1))
    return stratum.unseen * stratum.weight**2 * size * spread
