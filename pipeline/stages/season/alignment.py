"""Alignment of episodes: the stretches in which two of them show the same pictures at one offset in time.

The method is that of audio fingerprints (Chromaprint, and Intro Skipper for Jellyfin, which aligns Chromaprint's
fingerprints of episodes), with the perceptual hashes of `duplicates.py` in place of fingerprints:

1. Frames whose hashes differ in at most 40 bits vote for the offset between their times.
2. Along an offset with enough votes, frames match if they differ in at most 72 bits: other credits over a picture
   change its hash more than another encoding. A stretch is where more frames match than differ.
3. A stretch ends at a cut of either episode nearby, over frames that differ in at most 96 bits: credits may hide half
   of its first or last shot. It also extends to a cut that both episodes have at one time shortly before or after.

Films that were cut by an earlier version have hashes inside clips only. There a stretch extends up to the cut at which
the episodes part: over scenes too short for a clip while both episodes cut at the same times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pipeline.core.records import Scene

NEAR_BITS, LOOSE_BITS = 40, 72
"""Five lines of credits over a small picture change up to 72 bits; one in 100 pairs of frames is so close by chance."""
_VEILED_BITS = 96
"""Credits in both episodes and a poor encoding change up to 92 bits of a plain shot; other pictures differ in 104."""
GAP_SECONDS = 3.5
"""Longest gap in a stretch, as in Intro Skipper."""
LEAST_SECONDS = 1.0
"""Shortest stretch."""
_STEP_SECONDS = 0.125
"""Width of a bin of offsets: the distance of hashed frames."""
_SAME_SECONDS = 0.25
"""Largest difference of times that still count as one."""
_LEAST_VOTES = 6
"""Frames with a near frame that make an offset worth a look, and a stretch real."""
_MOST_ALIKE = 512
"""Most frames that agree with a frame in a word: a picture held for a minute says nothing about the offset."""
_COVERED_SECONDS = 0.75
"""Longest part at either end of a stretch that credits may hide."""


@dataclass(frozen=True)
class HashedEpisode:
    """Hashed frames of an episode in order of time, and the times of its cuts, its start and its end."""

    film_id: str
    seconds: float
    times_M: NDArray[np.float64]
    hashes_M4: NDArray[np.uint64]
    cuts: tuple[float, ...]

    @classmethod
    def of(
        cls, film_id: str, seconds: float, frames: Iterable[tuple[float, str]], scenes: Sequence[Scene]
    ) -> HashedEpisode:
        """The episode by the times and hashes of its frames (in `hashes`, or in `looks`) and its scenes."""
        hashed = sorted((time, text) for time, text in frames if text)
        packed = np.frombuffer(bytes.fromhex("".join(text for _, text in hashed)), np.uint64)
        times_M = np.array([time for time, _ in hashed], np.float64)
        cuts = sorted({0.0, seconds, *(scene.start_seconds for scene in scenes)})
        return cls(film_id, seconds, times_M, packed.reshape(-1, 4), tuple(cuts))


@dataclass(frozen=True)
class Alignment:
    """Stretch that two episodes share: its bounds in the first, and the offset to the second, seconds."""

    first: int
    second: int
    """Positions of the episodes."""
    start: float
    end: float
    offset: float


def find_alignments(episodes: Sequence[HashedEpisode]) -> list[Alignment]:
    """Return all shared stretches, of each pair of episodes apart, by position.

    Of two episodes that share more than half of one, only the first stretch found is returned.
    """
    found = []
    for (first, one), (second, other) in combinations(enumerate(episodes), 2):
        for start, end, offset in _stretches(one, other, _votes(one, other)):
            found.append(Alignment(first, second, start, end, offset))
            if 2 * (end - start) > min(one.seconds, other.seconds):
                break  # copies of one another have millions of votes
    return found


def _votes(one: HashedEpisode, other: HashedEpisode) -> NDArray[np.float64]:
    """Times of the near frames of two episodes, of those that agree in a word of 16 bits (see `duplicates.py`)."""
    codes = [np.empty(0, np.int64)]
    for ours_M, theirs_M in zip(one.hashes_M4.view(np.uint16).T, other.hashes_M4.view(np.uint16).T, strict=True):
        order_M = np.argsort(theirs_M, kind="stable")
        first_M = np.searchsorted(theirs_M, ours_M, "left", order_M)
        counts_M = np.searchsorted(theirs_M, ours_M, "right", order_M) - first_M
        counts_M[counts_M > _MOST_ALIKE] = 0
        ours_P = np.repeat(np.arange(len(ours_M)), counts_M)
        inside_P = np.arange(len(ours_P)) - np.repeat(np.cumsum(counts_M) - counts_M, counts_M)
        theirs_P = order_M[first_M[ours_P] + inside_P]
        near_P = np.bitwise_count(one.hashes_M4[ours_P] ^ other.hashes_M4[theirs_P]).sum(1) <= NEAR_BITS
        codes.append(ours_P[near_P] * len(other.times_M) + theirs_P[near_P])
    ours_V, theirs_V = np.divmod(np.unique(np.concatenate(codes)), max(len(other.times_M), 1))
    return np.stack([one.times_M[ours_V], other.times_M[theirs_V]], 1)


def _stretches(
    one: HashedEpisode, other: HashedEpisode, votes_V2: NDArray[np.float64]
) -> Iterator[tuple[float, float, float]]:
    """Yield the start, end and offset of each stretch, the one with most votes first; votes that it explains go."""
    while len(votes_V2):
        offset, count = _best_offset(votes_V2)
        if count < _LEAST_VOTES:
            return
        explained_V = np.abs(votes_V2[:, 1] - votes_V2[:, 0] - offset) <= _SAME_SECONDS
        bits_M = _distances(one, other, offset)
        runs = [_up_to_the_cuts(one, other, offset, bits_M, *run) for run in _runs(one, bits_M)]
        for start, end in _united(runs):
            yield start, end, offset
            # held pictures, and pictures that return, vote for other offsets too
            for side, shift in ((0, 0.0), (1, offset)):
                times_V = votes_V2[:, side] - shift
                explained_V |= (start - _STEP_SECONDS <= times_V) & (times_V <= end + _STEP_SECONDS)
        votes_V2 = votes_V2[~explained_V]


def _united(runs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Stretches along one offset, those that meet as one."""
    united: list[tuple[float, float]] = []
    for start, end in sorted(runs):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def _best_offset(votes_V2: NDArray[np.float64]) -> tuple[float, int]:
    """Return the offset for which most frames of the first episode vote, and their number."""
    offsets_V = votes_V2[:, 1] - votes_V2[:, 0]
    bins_V = np.floor(offsets_V / _STEP_SECONDS).astype(np.int64)
    _, frames_V = np.unique(votes_V2[:, 0], return_inverse=True)
    codes = np.unique(np.concatenate([bins_V, bins_V - 1]) * len(votes_V2) + np.tile(frames_V, 2))
    bins, counts = np.unique(codes // len(votes_V2), return_counts=True)
    best = bins[counts.argmax()]  # counts the bin and the next one, as an offset may lie at their border
    return float(np.median(offsets_V[(bins_V == best) | (bins_V == best + 1)])), int(counts.max())


def _distances(one: HashedEpisode, other: HashedEpisode, offset: float) -> NDArray[np.float64]:
    """Bits between each frame of one episode and the best of the frames at its time in the other; inf without one."""
    wanted_M = one.times_M + offset
    at_M = np.searchsorted(other.times_M, wanted_M)
    best_M, least_M = np.full((2, len(wanted_M)), np.inf)
    for step in (-2, -1, 0, 1):
        there_M = np.clip(at_M + step, 0, len(other.times_M) - 1)
        apart_M = np.abs(other.times_M[there_M] - wanted_M)
        bits_M = np.bitwise_count(one.hashes_M4 ^ other.hashes_M4[there_M]).sum(1)
        best_M = np.where(apart_M <= _SAME_SECONDS, np.minimum(best_M, bits_M), best_M)
        least_M = np.minimum(least_M, apart_M)
    # a frame beside a clip is not in it: the picture may have moved on
    return np.where(least_M <= _SAME_SECONDS / 3, best_M, np.inf)


def _runs(one: HashedEpisode, bits_M: NDArray[np.float64]) -> Iterator[tuple[float, float]]:
    """Yield the stretches along an offset in which more frames match than differ, as long as possible."""
    compared_M = np.isfinite(bits_M)
    times_C, bits_C = one.times_M[compared_M], bits_M[compared_M]
    matching = np.flatnonzero(bits_C <= LOOSE_BITS)
    parts = np.split(matching, np.flatnonzero(np.diff(times_C[matching]) > GAP_SECONDS) + 1)
    waiting = [slice(part[0], part[-1] + 1) for part in parts if part.size]
    while waiting:
        part = waiting.pop()
        if np.count_nonzero(bits_C[part] <= NEAR_BITS) < _LEAST_VOTES:
            continue
        # the part with the largest sum (Kadane); what is left of it and right of it is looked at again
        sums = np.concatenate([[0], np.cumsum(np.where(bits_C[part] <= LOOSE_BITS, 1, -1))])
        end = int((sums - np.minimum.accumulate(sums)).argmax())
        start = int(sums[:end].argmin())
        run = slice(part.start + start, part.start + end)
        votes = np.count_nonzero(bits_C[run] <= NEAR_BITS)
        if times_C[run][-1] - times_C[run][0] >= LEAST_SECONDS and votes >= _LEAST_VOTES:
            yield float(times_C[run][0]), float(times_C[run][-1])
        waiting += [slice(part.start, run.start), slice(run.stop, part.stop)]


def _up_to_the_cuts(
    one: HashedEpisode, other: HashedEpisode, offset: float, bits_M: NDArray[np.float64], start: float, end: float
) -> tuple[float, float]:
    """Extend a stretch to where the episodes part."""
    differing = one.times_M[np.isfinite(bits_M) & (bits_M > _VEILED_BITS)]
    after, before = differing[differing > end], differing[differing < start]
    latest = min(after[0] if after.size else np.inf, one.seconds, other.seconds - offset)
    earliest = max(before[-1] if before.size else -np.inf, 0.0, -offset)
    ours, theirs = np.array(one.cuts), np.array(other.cuts) - offset
    start, end = -_parting(-ours, -theirs, -start, -earliest), _parting(ours, theirs, end, latest)
    both = [float(cut) for cut in ours if np.abs(theirs - cut).min() <= _SAME_SECONDS / 2]
    return -_uncovered([-cut for cut in both], -start), _uncovered(both, end)


def _uncovered(both: Sequence[float], end: float) -> float:
    """Return the end of a stretch whose last shot other credits may hide, if no cut of both episodes is at `end`."""
    near = [cut for cut in both if abs(cut - end) <= _COVERED_SECONDS]
    return end if any(cut <= end + _STEP_SECONDS for cut in near) else max([end, *near])


def _parting(ours: NDArray[np.float64], theirs: NDArray[np.float64], end: float, latest: float) -> float:
    """Time after `end`, and up to `latest`, of the last cut that both have before the first that only one has."""
    cuts = sorted(cut for cuts in (ours, theirs) for cut in cuts if end - _SAME_SECONDS < cut <= latest + _SAME_SECONDS)
    reached = None
    for cut in cuts:
        if cut - (end if reached is None else reached) > GAP_SECONDS:
            break
        if any(np.abs(each - cut).min(initial=np.inf) > _SAME_SECONDS for each in (ours, theirs)):
            reached = cut if reached is None else reached
            break
        reached = cut
    return float(min(end + _STEP_SECONDS / 2 if reached is None else reached, latest))
