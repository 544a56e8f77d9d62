"""Confidence intervals of a share: Wilson's score interval with the effective size of a simple or stratified sample.

Wilson's interval covers close to 95% also for shares near 1, for which the plain normal interval covers far less
(Brown, Cai and DasGupta 2001, Statistical Science 16:101). Of seven forms for stratified samples, Franco, Little, Louis
and Slud (2019, Journal of Survey Statistics and Methodology 7:334) recommend it, with the effective size as the size.

The effective size follows from the variance of a ratio over strata drawn without replacement (Cochran, Sampling
Techniques, 6.11), so it also holds if only some clips of the sample count. It never exceeds Kish's size, which follows
from the weights alone: with few errors, the estimated variance is often far too small.
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
    """Estimated share of a whole dataset, with the ends of its 95% interval."""

    share: float
    low: float
    high: float

    @property
    def percent(self) -> str:
        """The share, such as `86.7%`."""
        return f"{self.share:.1%}"

    @property
    def interval(self) -> str:
        """The interval, such as `62.1 to 96.3%`."""
        return f"{100 * self.low:.1f} to {self.high:.1%}"


@dataclass(frozen=True)
class Stratum:
    """Part of a sample that was drawn at random from one stratum."""

    hits_N: Counts_N
    """Hits of each clip of the sample."""
    tries_N: Counts_N
    """Tries of each clip, at least its hits; a clip with 0 tries does not count."""
    population: float = math.inf
    """Clips in the stratum; infinite for the only stratum of a sample from a population of unknown size."""

    @property
    def weight(self) -> float:
        """Clips of the dataset that one clip of the sample represents."""
        return self.population / len(self.tries_N) if math.isfinite(self.population) else 1.0

    @property
    def unseen(self) -> float:
        """Share of the stratum outside the sample."""
        return 1 - len(self.tries_N) / self.population

    def variance(self, share: float) -> float:
        """Variance of the weighted sum of hits beyond the share; 0 for a single clip."""
        size = len(self.tries_N)
        if size < 2:
            return 0.0
        spread = float(np.var(self.hits_N - share * self.tries_N, ddof=1))
        return self.unseen * self.weight**2 * size * spread


def estimated(strata: Sequence[Stratum], missing: float = 0) -> Share | None:
    """Return hits over tries in the whole population; None if nothing was tried.

    Args:
        strata: the sample.
        missing: clips of the dataset in strata without a clip in the sample. All of them may be hits, or none; the
            interval contains both cases.
    """
    tries = sum(stratum.weight * float(stratum.tries_N.sum()) for stratum in strata)
    if not tries:
        return None
    share = sum(stratum.weight * float(stratum.hits_N.sum()) for stratum in strata) / tries
    low, high = wilson(share, _effective_size(strata, share, tries))
    seen = tries / (tries + missing)
    return Share(share=share, low=low * seen, high=high * seen + 1 - seen)


def wilson(share: float, size: float, deviations: float = _Z) -> tuple[float, float]:
    """Return Wilson's score interval of a share of `size` tries; an infinite size gives the share itself.

    By default, the `deviations` to each side contain 95% of a normal distribution.
    """
    if math.isinf(size):
        return share, share
    centre = share + deviations**2 / (2 * size)
    reach = deviations * math.sqrt(share * (1 - share) / size + (deviations / (2 * size)) ** 2)
    scale = 1 + deviations**2 / size
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)


def _effective_size(strata: Sequence[Stratum], share: float, tries: float) -> float:
    """Return the size of a simple random sample with the same information."""
    by_weights = sum(stratum.unseen * stratum.weight**2 * float(stratum.tries_N.sum()) for stratum in strata)
    if not by_weights:
        return math.inf  # every clip was seen
    size = sum(len(stratum.tries_N) for stratum in strata)
    variance = sum(stratum.variance(share) for stratum in strata) / tries**2
    if not variance:
        return tries**2 / by_weights
    return min(tries**2 / by_weights, share * (1 - share) / variance * size / (size - 1))
