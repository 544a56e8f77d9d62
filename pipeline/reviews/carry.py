"""Characters carried from reviewed clips to clips that look alike, and the clips to review next.

    likeness = Likeness.of(vectors_CPD, films, scenes, seconds)
    guesses = carry(likeness, {3: Reviewed(("Ponyo",), "Ponyo"), 17: Reviewed((), None)})     by row of a clip
    rows = most_telling(likeness, reviewed=[3, 17], most=40)

Both are a Gaussian process over clips, which are alike by their pictures, by time in one film, and by a common scene.
A set of characters counts as far as the process expects the whole set, and each of its characters alone. Sets that no
reviewer has named yet get the share of the sets that were named once (Good and Turing).

A clip is worth a review if it leaves little doubt about the others: the greedy choice of the clip that lowers their
variance the most (A-optimal design), in which the variance of a doubtful clip counts more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

_PICTURES, _COPIES, _TIME, _SCENE = 1.0, 1.0, 1.0, 0.5
"""Weights of the parts of the likeness: cosine of two clips, its fourth power, nearness in time, a common scene."""
_SECONDS = 10.0
"""Time after which the nearness of two clips of one film has fallen to a third."""
_NOISE, _LEAST = 0.1, 0.01
"""Variance of a review, and the least share of a set of characters."""
_SLOPE, _SHIFT = 0.81, 0.26
"""Log odds of a right guess from those of its share; fitted to half of Big Buck Bunny (`benchmarks.cast --fit`)."""
_AT_ONCE = 2048
"""Clips to guess at once, most reviews to guess from, and clips among which the next one to review is sought."""


@dataclass(frozen=True)
class Reviewed:
    """Reviewed characters of a clip, and who or what acts; None if nobody can tell."""

    characters: tuple[str, ...]
    actor: str | None


@dataclass(frozen=True)
class Guess:
    """Characters and actor carried to a clip, and the probability that exactly these characters are on screen."""

    characters: tuple[str, ...]
    actor: str | None
    confidence: float


@dataclass(frozen=True)
class Likeness:
    """Likeness of clips; 1 to itself."""

    vector_CD: Floats
    """Vectors of length 1 around the mean of all, or zeros if all pictures are equal."""
    film_C: NDArray[np.int64]
    scene_C: NDArray[np.int64]
    second_C: Floats

    @classmethod
    def of(
        cls, vectors_CPD: NDArray[np.floating], films: Sequence[int], scenes: Sequence[int], seconds: Sequence[float]
    ) -> Likeness:
        """Return the likeness of clips.

        Args:
            vectors_CPD: vectors of the P pictures of each clip.
            films: number of each clip's film.
            scenes: number of its scene in the film.
            seconds: time of its middle.
        """
        wide_CPD = vectors_CPD.astype(np.float32)
        centred_CPD = wide_CPD - wide_CPD.mean(axis=(0, 1))
        return cls(
            _unit(_unit(centred_CPD).mean(axis=1)),
            np.array(films, np.int64),
            np.array(scenes, np.int64),
            np.array(seconds, np.float32),
        )

    def between(self, rows: Rows, columns: Rows) -> Floats:
        """Return the likeness of some clips to others, shape (rows, columns); it is positive semidefinite."""
        cosine_RK = self.vector_CD[rows] @ self.vector_CD[columns].T
        same_film_RK = self.film_C[rows, None] == self.film_C[columns]
        same_scene_RK = self.scene_C[rows, None] == self.scene_C[columns]
        near_RK = np.exp(-np.abs(self.second_C[rows, None] - self.second_C[columns]) / _SECONDS)
        alike_RK = _PICTURES * cosine_RK + _COPIES * cosine_RK**4
        found_RK: Floats = alike_RK + same_film_RK * (_TIME * near_RK + _SCENE * same_scene_RK)
        return (found_RK / (_PICTURES + _COPIES + _TIME + _SCENE)).astype(np.float32)

    def inverse(self, rows: Rows) -> Floats:
        """Return the inverse of the likeness among reviewed clips with the variance of a review."""
        inside_RR = self.between(rows, rows).astype(np.float64) + _NOISE * np.eye(len(rows))
        return np.linalg.inv(inside_RR).astype(np.float32)


@dataclass(frozen=True)
class _Votes:
    """Votes of R reviewed clips for S sets of N characters and for A actors; 1 or 0."""

    sets: Sequence[tuple[str, ...]]
    names: Sequence[str]
    actors: Sequence[str]
    has_SN: Floats
    """Characters of each set."""
    set_RS: Floats
    act_RA: Floats
    unnamed: float
    """Share of clips with a set of characters that nobody has named yet."""

    @classmethod
    def of(cls, said: Sequence[Reviewed]) -> _Votes:
        """Return the votes of reviewed clips."""
        counts = Counter(tuple(sorted(each.characters)) for each in said)
        sets, actors = sorted(counts), sorted({each.actor for each in said if each.actor})
        names = sorted({name for one in sets for name in one})
        once = sum(count == 1 for count in counts.values())
        return cls(
            sets,
            names,
            actors,
            np.array([[name in one for name in names] for one in sets], np.float32).reshape(len(sets), len(names)),
            np.array([[set(each.characters) == set(one) for one in sets] for each in said], np.float32),
            np.array([[each.actor == one for one in actors] for each in said], np.float32).reshape(len(said), -1),
            max(once, 1) / (len(said) + 1),
        )

    def shares(self, weight_BR: Floats) -> Floats:
        """Return the share of each set for B clips with these weights of reviewed clips; unnamed sets have the rest."""
        mean_S = (1 - self.unnamed) * self.set_RS.mean(axis=0)
        set_BS = (mean_S + weight_BR @ (self.set_RS - mean_S)).clip(_LEAST, 1)
        other_B1 = (self.unnamed * (1 - weight_BR.sum(axis=1, keepdims=True))).clip(_LEAST, 1)
        name_RN = self.set_RS @ self.has_SN
        name_BN = name_RN.mean(axis=0) + weight_BR @ (name_RN - name_RN.mean(axis=0))
        name_BN = name_BN.clip(2 * _LEAST, 1 - 2 * _LEAST)
        together_BS = np.exp(np.log(name_BN) @ self.has_SN.T + np.log(1 - name_BN) @ (1 - self.has_SN.T))
        mass_BS = np.sqrt(set_BS * together_BS)
        found_BS: Floats = mass_BS / mass_BS.sum(axis=1, keepdims=True) * (1 - other_B1 / (1 + other_B1))
        return found_BS

    def actor(self, characters: tuple[str, ...], act_A: Floats) -> str | None:
        """Return the likeliest actor among these characters; without them, whatever acts."""
        able = [at for at, each in enumerate(self.actors) if each in characters or each not in self.names]
        of_set = [at for at in able if self.actors[at] in characters] or ([] if characters else able)
        return self.actors[max(of_set, key=lambda at: float(act_A[at]))] if of_set else None


def carry(likeness: Likeness, reviewed: Mapping[int, Reviewed]) -> dict[int, Guess]:
    """Return a guess for every clip that was not reviewed, by its row; none without a reviewed clip."""
    if not reviewed:
        return {}
    every_R = np.array(sorted(reviewed))
    known_R = _spread(every_R)
    votes, inverse_RR = _Votes.of([reviewed[int(row)] for row in known_R]), likeness.inverse(known_R)
    found: dict[int, Guess] = {}
    others_C = np.setdiff1d(np.arange(len(likeness.film_C)), every_R)
    for rows_B in (others_C[start : start + _AT_ONCE] for start in range(0, len(others_C), _AT_ONCE)):
        weight_BR = likeness.between(rows_B, known_R) @ inverse_RR
        act_BA = weight_BR @ votes.act_RA
        for row, share_S, act_A in zip(rows_B.tolist(), votes.shares(weight_BR), act_BA, strict=True):
            best = int(share_S.argmax())
            characters = votes.sets[best]
            found[row] = Guess(characters, votes.actor(characters, act_A), _confidence(float(share_S[best])))
    return found


def most_telling(
    likeness: Likeness, reviewed: Sequence[int], most: int, doubt_C: NDArray[np.floating] | None = None
) -> list[int]:
    """Return the rows of at most `most` clips to review next, the most telling first.

    Args:
        likeness: likeness of the clips.
        reviewed: rows of the clips that were reviewed.
        most: number of clips.
        doubt_C: doubt about each clip, 0..1; None: the same about all.
    """
    if not most:
        return []
    every_R = np.array(sorted(reviewed), np.int64)
    known_R, rows = _spread(every_R), _spread(np.setdiff1d(np.arange(len(likeness.film_C)), every_R))
    left_CC = likeness.between(rows, rows)
    if len(known_R):
        to_known_CR = likeness.between(rows, known_R)
        left_CC -= to_known_CR @ likeness.inverse(known_R) @ to_known_CR.T
    weight_C = np.ones(len(rows), np.float32) if doubt_C is None else doubt_C[rows].astype(np.float32)
    is_free_C = np.ones(len(rows), bool)
    chosen: list[int] = []
    for _ in range(min(most, len(rows))):
        own_C = np.diagonal(left_CC).clip(0) + _NOISE
        best = int(np.where(is_free_C, weight_C @ left_CC**2 / own_C, -1).argmax())
        left_CC -= np.outer(left_CC[:, best], left_CC[best]) / own_C[best]
        is_free_C[best] = False
        chosen.append(int(rows[best]))
    return chosen


def _confidence(share: float) -> float:
    odds = np.log(max(share, 1e-6) / max(1 - share, 1e-6))
    return float(1 / (1 + np.exp(-(_SLOPE * odds + _SHIFT))))


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Floats = np.where(length > 1e-3, vectors / np.maximum(length, 1e-3), 0).astype(np.float32)
    return unit


def _spread(rows: Rows) -> Rows:
    """Return some of many rows, evenly spread: the likeness of all pairs is held at once."""
    return rows if len(rows) <= _AT_ONCE else rows[np.linspace(0, len(rows) - 1, _AT_ONCE).astype(int)]
