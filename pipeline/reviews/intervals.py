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
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.records import Record

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


class Share(Record):
    """Estimated share of a whole dataset, with the ends of its 95% interval."""

    share: float
    low: float
    high: float


def estimated(strata: Sequence[str], counts_N2: ArrayLike, populations: Mapping[str, float]) -> Share | None:
    """Return hits over tries in the whole population; None if nothing was tried.

    Args:
        strata: stratum of each of N clips, which were drawn at random within it.
        counts_N2: hits and tries of each clip; a clip with 0 tries does not count.
        populations: clips of the dataset in each stratum; infinite for the only stratum of a population of unknown
            size. In a stratum without a clip in the sample, all clips may be hits, or none; the interval contains both.
    """
    hits_N, tries_N = np.asarray(counts_N2, float).T
    names, places_N = np.unique(strata, return_inverse=True)
    sizes_N = np.bincount(places_N)[places_N]
    populations_N = np.array([populations[name] for name in names])[places_N]
    weights_N = np.where(np.isinf(populations_N), 1, populations_N / sizes_N)
    tries = float(weights_N @ tries_N)
    if not tries:
        return None
    share = float(weights_N @ hits_N) / tries
    # Kish's size, in which only clips outside the sample are in doubt: infinite if there are none
    doubts_N = weights_N**2 * (1 - sizes_N / populations_N)
    doubt = float(doubts_N @ tries_N)
    size = tries**2 / doubt if doubt else math.inf
    # the size of a simple sample with the estimated variance, if that is smaller; a single clip has no variance
    beyond_N = hits_N - share * tries_N
    spreads_N = (beyond_N - np.bincount(places_N, beyond_N)[places_N] / sizes_N) ** 2 / np.maximum(sizes_N - 1, 1)
    if variance := float(doubts_N * sizes_N @ spreads_N) / tries**2:
        size = min(size, share * (1 - share) / variance * len(strata) / (len(strata) - 1))
    low, high = wilson(share, size)
    seen = tries / (tries + sum(clips for name, clips in populations.items() if name not in names))
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
