"""Clusters against the plain way, one merge at a time, and their time and memory at 20,000 vectors."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.reviews.casting.clusters import clusters, halves


def random_vectors(count: int, size: int, groups: int | None = None, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(groups or count, size))
    around = centres[rng.integers(len(centres), size=count)] + 0.5 * rng.normal(size=(count, size)) * bool(groups)
    vectors = around if groups else centres
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def merged_one_by_one(vectors_ND: NDArray[np.float32], least: float) -> set[frozenset[int]]:
    parts = [[place] for place in range(len(vectors_ND))]
    alike = vectors_ND @ vectors_ND.T
    while len(parts) > 1:
        pairs = ((float(alike[np.ix_(one, other)].mean()), one, other) for one, other in combinations(parts, 2))
        best, one, other = max(pairs, key=lambda pair: pair[0])
        if best < least:
            break
        one += other
        parts.remove(other)
    return set(map(frozenset, parts))


@pytest.mark.parametrize("least", [0.9, 0.5, 0.1, -1.0])
def test_clusters_are_those_of_one_merge_at_a_time(least: float) -> None:
    vectors_ND = random_vectors(60, 6)
    label_N = clusters(vectors_ND, least)
    found = {frozenset(np.flatnonzero(label_N == label).tolist()) for label in label_N}
    assert found == merged_one_by_one(vectors_ND, least)
    assert all(min(part) in label_N for part in found)


def test_equal_vectors_one_vector_and_none() -> None:
    same_ND = np.tile(random_vectors(1, 8), (50, 1))
    assert set(clusters(same_ND, 0.99).tolist()) == {0}
    assert halves(same_ND).sum() == 25
    assert clusters(same_ND[:1], 0.5).tolist() == [0]
    assert clusters(same_ND[:0], 0.5).tolist() == []


def test_halves_tell_two_groups_apart() -> None:
    one, other = np.eye(2, 16, dtype=np.float32)
    noise = 0.05 * np.random.default_rng(1).normal(size=(40, 16)).astype(np.float32)
    group_N = np.arange(40) % 4 == 3
    half_N = halves(np.where(group_N[:, None], other, one) + noise)
    assert half_N.tolist() == group_N.tolist()


@pytest.mark.slow
def test_20000_vectors_take_seconds_and_no_matrix_of_all_pairs() -> None:
    """A matrix of all pairs would take 1,600 MB."""
    import tracemalloc

    vectors_ND = random_vectors(20_000, 256, groups=300)
    tracemalloc.start()
    before = time.process_time()
    label_N = clusters(vectors_ND, 0.4)
    assert time.process_time() - before < 60
    assert tracemalloc.get_traced_memory()[1] < 300e6
    tracemalloc.stop()
    assert len(set(label_N.tolist())) == 300
