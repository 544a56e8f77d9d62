"""Average-linkage clusters of vectors by cosine, in plain numpy, for 20,000 vectors on one core.

    label_N = clusters(vectors_ND, least=0.8)      clusters that are alike by at least .8 on average are one
    half_N = halves(vectors_ND)                    the two parts of a cluster

The average likeness of two clusters is the dot product of their mean vectors, so no matrix of all pairs is kept. A
merge never raises the likeness to a third cluster. All pairs of clusters that are each other's nearest may therefore
merge at once, with the same result as one merge at a time (reciprocal agglomerative clustering, Sumengen et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1024
"""Clusters whose nearest others are searched at once."""
_ROUNDS = 20
"""Most rounds of the search for halves."""


def clusters(vectors_ND: NDArray[np.float32], least: float) -> NDArray[np.int64]:
    """Return a label for each vector of length 1: the place of the first vector of its cluster.

    Args:
        vectors_ND: vectors, shape (count, size).
        least: average likeness from which on two clusters are one, -1..1.
    """
    search = _Search.of(vectors_ND)
    search.find(np.arange(len(vectors_ND)))
    while True:
        # 1. Clusters without another one in reach are finished: no merge of others brings one nearer.
        search.alive_A = search.alive_A[search.likeness_N[search.alive_A] >= least]
        if not len(search.alive_A):
            return search.labels()
        # 2. Merge all pairs that are each other's nearest.
        ones, others = search.pairs()
        search.merge(ones, others)
        # 3. Search again for the merged clusters, and for those whose nearest one has merged.
        has_merged = np.zeros(len(vectors_ND), bool)
        has_merged[ones] = has_merged[others] = True
        alive_A = search.alive_A
        search.find(alive_A[has_merged[alive_A] | has_merged[search.nearest_N[alive_A]]])


def halves(vectors_ND: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return True for the vectors that are nearer to one end than to the other: 2-means, from the most unlike pair.

    The first vector is never in the marked half. Vectors that are all equal are split in the order given.
    """
    end = int((vectors_ND @ vectors_ND.mean(axis=0)).argmin())
    start = int((vectors_ND @ vectors_ND[end]).argmin())
    centres_2D = vectors_ND[[start, end]]
    half_N = np.arange(len(vectors_ND)) >= (len(vectors_ND) + 1) // 2
    for _ in range(_ROUNDS):
        nearer_N = np.diff(vectors_ND @ centres_2D.T, axis=1)[:, 0] > 0
        if nearer_N.all() or not nearer_N.any() or (nearer_N == half_N).all():
            break
        half_N = nearer_N
        centres_2D = np.stack([vectors_ND[half_N == side].mean(axis=0) for side in (False, True)])
        centres_2D /= np.maximum(np.linalg.norm(centres_2D, axis=1, keepdims=True), 1e-12)
    moved_N: NDArray[np.bool_] = half_N ^ half_N[0]
    return moved_N


@dataclass
class _Search:
    """Clusters by the place of their first vector, and the nearest other cluster of each."""

    mean_ND: NDArray[np.float32]
    size_N: NDArray[np.int64]
    into_N: NDArray[np.int64]
    """Cluster into which each one was merged; its own place while it is alive."""
    alive_A: NDArray[np.int64]
    nearest_N: NDArray[np.int64] = field(init=False)
    likeness_N: NDArray[np.float32] = field(init=False)

    @classmethod
    def of(cls, vectors_ND: NDArray[np.float32]) -> _Search:
        places_N = np.arange(len(vectors_ND))
        return cls(vectors_ND.copy(), np.ones(len(vectors_ND), np.int64), places_N.copy(), places_N)

    def __post_init__(self) -> None:
        self.nearest_N = self.into_N.copy()
        self.likeness_N = np.full(len(self.into_N), -np.inf, np.float32)

    def find(self, places: NDArray[np.int64]) -> None:
        """Search the nearest cluster of each of these."""
        means_AD = self.mean_ND[self.alive_A]
        for low in range(0, len(places), _AT_ONCE):
            some = places[low : low + _AT_ONCE]
            alike_SA = self.mean_ND[some] @ means_AD.T
            alike_SA[some[:, None] == self.alive_A] = -np.inf
            best_S = alike_SA.argmax(axis=1)
            self.nearest_N[some] = self.alive_A[best_S]
            self.likeness_N[some] = alike_SA[np.arange(len(some)), best_S]

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of clusters that are each other's nearest, the first cluster of each pair first; at least one pair."""
        nearest_A = self.nearest_N[self.alive_A]
        ones = self.alive_A[(self.nearest_N[nearest_A] == self.alive_A) & (self.alive_A < nearest_A)]
        if not len(ones):  # rounding can send equally near clusters round in a circle
            best = self.alive_A[self.likeness_N[self.alive_A].argmax()]
            return np.array([min(best, self.nearest_N[best])]), np.array([max(best, self.nearest_N[best])])
        return ones, self.nearest_N[ones]

    def merge(self, ones: NDArray[np.int64], others: NDArray[np.int64]) -> None:
        """Merge each of the others into its partner."""
        sizes_P1, more_P1 = self.size_N[ones, None], self.size_N[others, None]
        self.mean_ND[ones] = (self.mean_ND[ones] * sizes_P1 + self.mean_ND[others] * more_P1) / (sizes_P1 + more_P1)
        self.size_N[ones] += self.size_N[others]
        self.into_N[others] = ones
        self.alive_A = self.alive_A[self.into_N[self.alive_A] == self.alive_A]

    def labels(self) -> NDArray[np.int64]:
        """Place of the first vector of each vector's cluster."""
        into_N = self.into_N
        while not np.array_equal(further_N := into_N[into_N], into_N):
            into_N = further_N
        return into_N
