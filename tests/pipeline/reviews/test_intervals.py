"""Confidence intervals of an audit: published values, limits, and coverage in simulated audits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from pipeline.reviews.audit_sample import Span, draw
from pipeline.reviews.intervals import Share, estimated, wilson

AUDITS = 2000
"""Enough that chance moves the coverage by 1 % at most."""
SIZE = 200
LEVELS = {"1": 2000, "2": 1500, "3": 750, "4": 500, "5": 250}


def found(strata: list[str], counts: object, populations: Mapping[str, float]) -> Share:
    share = estimated(strata, np.asarray(counts, float), populations)
    assert share
    return share


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_a_simple_sample_has_wilsons_interval(hits: int, tries: int, low: float, high: float) -> None:
    """The examples of Newcombe (1998), Statistics in Medicine 17:857, table I."""
    share = found([""] * tries, [(place < hits, 1) for place in range(tries)], {"": math.inf})
    assert (share.share, share.low, share.high) == pytest.approx((hits / tries, low, high), abs=5e-5)


def test_a_stratum_of_which_nothing_was_seen_is_doubt() -> None:
    share = found(["seen"] * 5, [(1, 1)] * 5, {"seen": 5, "unseen": 5000})
    assert (share.share, share.low, share.high) == pytest.approx((1, 5 / 5005, 1))


def test_names_of_one_clip_do_not_count_as_independent() -> None:
    """Ten clips whose four names are all right or all wrong tell little more than ten names."""
    share = found([""] * 10, [(4, 4)] * 5 + [(0, 4)] * 5, {"": math.inf})
    assert (share.low, share.high) == pytest.approx(wilson(0.5, 10))


def test_simple_audits_cover_the_truth() -> None:
    assert 0.93 <= coverage({"": SIZE}, {"": 20_000}, {"": 19_400}) <= 0.97


@pytest.mark.parametrize("shares", [(0.59, 0.72, 0.83, 0.9, 0.94), (0.984, 0.972, 0.95, 0.91, 0.85)])
def test_stratified_audits_cover_the_truth(shares: tuple[float, ...]) -> None:
    """The odds of the accuracy differ 11 times between the levels."""
    right = {level: round(share * size) for share, (level, size) in zip(shares, LEVELS.items(), strict=True)}
    spans = [Span(film_sha256="0" * 64, start_seconds=0, end_seconds=2, stratum=name) for name in LEVELS]
    drawn = draw([span for span in spans for _ in range(LEVELS[span.stratum])], SIZE, "level", seed=1, blind=False)
    assert 0.93 <= coverage(Counter(span.stratum for span in drawn.spans), LEVELS, right) <= 0.97


def test_equal_strata_of_very_unequal_sizes_cover_the_truth() -> None:
    """With six errors in a sample, its variance is mostly that of one stratum, which often has none of them.

    `draw` makes no such strata, but many characters come near it; the estimated variance alone covers 68 %.
    """
    populations = {"most": 4000, "a": 500, "b": 300, "c": 150, "d": 50}
    right = {level: round(0.97 * size) for level, size in populations.items()}
    assert coverage(dict.fromkeys(populations, 40), populations, right) >= 0.93


def test_audits_of_a_part_cover_the_truth() -> None:
    """Only two thirds of the clips have an answer of the machine, and it is right in nine of ten."""
    chance = np.random.default_rng(14)
    tries_N = np.arange(6000) % 3 > 0
    counts_N2 = np.stack([tries_N & (chance.random(6000) < 0.9), tries_N], axis=1)
    hits, tries = counts_N2.sum(axis=0)
    audits = (counts_N2[chance.choice(6000, SIZE, replace=False)] for _ in range(AUDITS))
    shares = [found([""] * SIZE, drawn, {"": 6000}) for drawn in audits]
    assert 0.93 <= np.mean([share.low <= hits / tries <= share.high for share in shares]) <= 0.97


def coverage(sizes: Mapping[str, int], populations: Mapping[str, int], right: Mapping[str, int]) -> float:
    """Share of simulated audits whose interval holds the accuracy of the population."""
    chance = np.random.default_rng(14)
    truth = sum(right.values()) / sum(populations.values())
    strata = [name for name, size in sizes.items() for _ in range(size)]
    ranks_N = np.concatenate([np.arange(size) for size in sizes.values()])
    hits_AS = np.stack(
        [chance.hypergeometric(right[name], populations[name] - right[name], sizes[name], AUDITS) for name in sizes], 1
    )
    hits_AN = ranks_N < np.repeat(hits_AS, list(sizes.values()), axis=1)
    shares = [found(strata, np.stack([hits_N, np.ones(len(strata))], 1), populations) for hits_N in hits_AN]
    return float(np.mean([share.low <= truth <= share.high for share in shares]))
