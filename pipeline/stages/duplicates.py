"""Search for near-duplicates: clips that repeat earlier ones (trailer, recap, opening) in any encode and phase.

A frame is identified by a perceptual hash of 256 bits. Resize the frame's luma to 64x64 and take its 2-D DCT; L is the
16x16 block of the lowest frequencies:

    h_k(f)    = 1 if L_k > median(L), else 0       k = 1..256
    d(f, g)   = sum_k |h_k(f) - h_k(g)|            Hamming distance of frames f and g, in bits
    near(f, B)  <=>  min over g in B of d(f, g) <= distance
    A repeats B  <=>  |{f in A : near(f, B)}| >= |A| / 2

A is the later clip, B the earlier one; flat frames, which have no hash, are in neither. The position of a frame in its
clip does not matter, because clips of a re-cut film start anywhere. In Big Buck Bunny and its trailer, two encodes of
one picture differ in a few bits. A line of text over it changes about 20 bits, and two shots of the same place differ
in 36 or more. A hash of 64 bits cannot separate these.

A copy at a low bitrate loses the detail of dark or empty pictures (credits), and its hashes there differ in up to 48
bits. This is accepted along a copy: if two clips nearby repeat clips of another film at one offset in time, a clip that
shares half of its frames, within twice the distance, with the clips at this offset repeats these.

Comparing all frames of 20,000 clips is too slow. So the 256 bits are read as 16 words of 16 bits, and only frames that
agree exactly in one word are compared. No pair of up to 15 differing bits is missed; a pair of 24 bits is missed one
time in forty. One matching frame makes two clips candidates, which are then compared in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
HASH_SIDE = 16
HASH_HEX = HASH_SIDE * HASH_SIDE // 4
"""Length of a hash as text."""

FLAT_CONTRAST = 8.0
"""Standard deviation of luma below which a frame has no hash: black frames and fades would all match each other."""

_DCT_SIDE = 64
_LEAST_HASHED_SHARE = 0.25
"""A clip with fewer hashed frames is not compared."""
_BATCH = 2048
_LOOSER = 2
"""Factor of the distance along a copy."""
_WITNESSES, _REACH_SECONDS = 2, 60.0
"""Repeats at one offset that make a copy, and the time within which they are sought, on either side."""


@dataclass(frozen=True)
class HashedClip:
    """Input of the search: one clip with the hashes of its frames."""

    film: str
    scene: int
    start_seconds: float
    seconds: float
    """Its length, by which two clips of one moment may start apart."""
    held: bool
    """No visible motion in any step."""
    hashes: tuple[str, ...]
    """One per frame; empty if a frame is too flat to be identified."""


def frame_hash(gray_HW: NDArray[np.uint8]) -> str:
    """Return the perceptual hash of a picture as 64 hex digits, or an empty string if the picture is too flat."""
    if gray_HW.std() < FLAT_CONTRAST:
        return ""
    small = cv2.resize(gray_HW, (_DCT_SIDE, _DCT_SIDE), interpolation=cv2.INTER_AREA)
    lowest = cv2.dct(small.astype(np.float32))[:HASH_SIDE, :HASH_SIDE]
    return np.packbits(lowest > np.median(lowest)).tobytes().hex()


def find_repeats(clips: Sequence[HashedClip], distance: int, gap_seconds: float) -> dict[int, list[int]]:
    """Find the earlier clips that each clip repeats.

    Within a film, clips of one scene and clips less than `gap_seconds` apart are not compared: a conversation returns
    to the same drawings while only the lips move. The search compares held clips in any case.

    Args:
        clips: in order; of two clips, the first in this sequence is the earlier one.
        distance: largest Hamming distance, in bits, of two frames of one picture.
        gap_seconds: least distance between the starts of two clips of one film.

    Returns:
        Position of the later clip -> positions of the earlier clips that it repeats, ascending.
    """
    table = _Table.of(clips)
    found_P2 = _confirmed(table, _candidates(table, distance, gap_seconds), distance)
    alike_P2 = _confirmed(table, _along_copies(table, found_P2), _LOOSER * distance)
    found: dict[int, list[int]] = {}
    for later, earlier in np.unique(np.concatenate([found_P2, alike_P2]), axis=0).tolist():
        found.setdefault(later, []).append(earlier)
    return found


@dataclass(frozen=True)
class _Table:
    """The clips as arrays: N clips of at most F frames, a hash as four 64-bit numbers."""

    hashes_NF4: NDArray[np.uint64]
    hashed_NF: NDArray[np.bool_]
    comparable_N: NDArray[np.bool_]
    film_N: NDArray[np.int64]
    scene_N: NDArray[np.int64]
    start_N: NDArray[np.float64]
    seconds_N: NDArray[np.float64]
    held_N: NDArray[np.bool_]

    @classmethod
    def of(cls, clips: Sequence[HashedClip]) -> _Table:
        frames = max((len(clip.hashes) for clip in clips), default=0)
        blank = "0" * HASH_HEX
        rows = [[*clip.hashes, *[""] * (frames - len(clip.hashes))] for clip in clips]
        digits = "".join(text or blank for row in rows for text in row)
        hashed_NF = np.array([[bool(text) for text in row] for row in rows], bool).reshape(len(clips), frames)
        lengths_N = np.array([max(1, len(clip.hashes)) for clip in clips])
        films = {name: number for number, name in enumerate(dict.fromkeys(clip.film for clip in clips))}
        return cls(
            hashes_NF4=np.frombuffer(bytes.fromhex(digits), np.uint64).reshape(len(clips), frames, 4),
            hashed_NF=hashed_NF,
            comparable_N=hashed_NF.sum(1) >= _LEAST_HASHED_SHARE * lengths_N,
            film_N=np.array([films[clip.film] for clip in clips], np.int64),
            scene_N=np.array([clip.scene for clip in clips], np.int64),
            start_N=np.array([clip.start_seconds for clip in clips], np.float64),
            seconds_N=np.array([clip.seconds for clip in clips], np.float64),
            held_N=np.array([clip.held for clip in clips], bool),
        )

    def may_repeat(self, a: NDArray[np.int64], b: NDArray[np.int64], gap_seconds: float) -> NDArray[np.bool_]:
        """Mask of the pairs of clips to compare."""
        apart = np.abs(self.start_N[a] - self.start_N[b]) >= gap_seconds
        elsewhere = (self.scene_N[a] != self.scene_N[b]) & apart
        other_film = self.film_N[a] != self.film_N[b]
        allowed: NDArray[np.bool_] = (a != b) & (other_film | elsewhere | (self.held_N[a] & self.held_N[b]))
        return allowed


def near_pairs(
    hashes_M4: NDArray[np.uint64], may_pair: Callable[[NDArray[np.intp], NDArray[np.intp]], Mask], distance: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the positions of hashes that agree in a word of 16 bits and differ in at most `distance` bits, each once.

    `may_pair` gives the mask of the positions (left, right) to compare.
    """
    words_MW = hashes_M4.view(np.uint16)
    for number, word_M in enumerate(words_MW.T):
        for left, right in _equal_pairs(word_M):
            # a pair is taken at its first equal word: hours of one still picture agree in all of them
            new = (words_MW[left, :number] != words_MW[right, :number]).all(axis=1)
            wanted = new & may_pair(left, right)
            left, right = left[wanted], right[wanted]
            near = np.bitwise_count(hashes_M4[left] ^ hashes_M4[right]).sum(1) <= distance
            yield left[near], right[near]


def _candidates(table: _Table, distance: int, gap_seconds: float) -> NDArray[np.int64]:
    """Pairs (later, earlier) of clips that share at least one near frame, sorted."""
    clip_M, frame_M = np.nonzero(table.hashed_NF & table.comparable_N[:, None])
    hashes_M4 = table.hashes_NF4[clip_M, frame_M]
    alone = np.unique(np.column_stack([clip_M.astype(np.uint64), hashes_M4]), axis=0)  # held frames count once
    clip_M, hashes_M4 = alone[:, 0].astype(np.int64), np.ascontiguousarray(alone[:, 1:])
    count, codes = len(table.film_N), [np.empty(0, np.int64)]

    def may_pair(left: NDArray[np.intp], right: NDArray[np.intp]) -> Mask:
        return table.may_repeat(clip_M[left], clip_M[right], gap_seconds)

    for left, right in near_pairs(hashes_M4, may_pair, distance):
        one, other = clip_M[left], clip_M[right]
        codes.append(np.unique(np.maximum(one, other) * count + np.minimum(one, other)))
    return np.stack(np.divmod(np.unique(np.concatenate(codes)), max(count, 1)), axis=1)


def _along_copies(table: _Table, found_P2: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs (later, earlier) of clips without a repeat and clips of another film at the offset of repeats nearby."""
    pairs = [np.empty((0, 2), np.int64)]
    films_P2, starts_P2 = table.film_N[found_P2], table.start_N[found_P2]
    without_N = table.comparable_N & ~np.isin(np.arange(len(table.film_N)), found_P2[:, 0])
    for film, other in np.unique(films_P2[films_P2[:, 0] != films_P2[:, 1]], axis=0).tolist():
        start_Q, original_Q = starts_P2[(films_P2 == (film, other)).all(1)].T
        for clip in np.flatnonzero(without_N & (table.film_N == film)):
            start, slack = table.start_N[clip], table.seconds_N[clip]
            near_Q = np.abs(start_Q - start) <= _REACH_SECONDS
            if near_Q.sum() < _WITNESSES:
                continue
            starts, offsets = start_Q[near_Q], (start_Q - original_Q)[near_Q]
            there_N = np.zeros(len(table.film_N), bool)
            for offset in np.unique(offsets):
                if len(np.unique(starts[np.abs(offsets - offset) <= slack])) >= _WITNESSES:
                    there_N |= np.abs(table.start_N + offset - start) <= slack
            there = np.flatnonzero(there_N & (table.film_N == other))
            pairs.append(np.sort(np.stack([np.full_like(there, clip), there], axis=1), axis=1)[:, ::-1])
    return np.unique(np.concatenate(pairs), axis=0)


def _equal_pairs(values_M: NDArray[np.uint16]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield all pairs of positions with equal values, one distance in the sorted order at a time."""
    order = np.argsort(values_M, kind="stable")
    ranked = values_M[order]
    left, step = np.arange(len(ranked) - 1), 1
    while left.size:
        left = left[left + step < len(ranked)]
        left = left[ranked[left] == ranked[left + step]]
        yield order[left], order[left + step]
        step += 1


def _confirmed(table: _Table, pairs_P2: NDArray[np.int64], distance: int) -> NDArray[np.int64]:
    """The pairs in which the later clip repeats the earlier one."""
    batches = [pairs_P2[start : start + _BATCH] for start in range(0, len(pairs_P2), _BATCH)]
    return np.concatenate([pairs_P2[:0], *(batch_P2[_repeats(table, batch_P2, distance)] for batch_P2 in batches)])


def _repeats(table: _Table, pairs_P2: NDArray[np.int64], distance: int) -> NDArray[np.bool_]:
    """Mask of the pairs whose later clip has at least half of its frames near a frame of the earlier clip."""
    later, earlier = pairs_P2.T
    bits_PFF = np.bitwise_count(table.hashes_NF4[later][:, :, None] ^ table.hashes_NF4[earlier][:, None]).sum(3)
    near_PFF = (bits_PFF <= distance) & table.hashed_NF[earlier][:, None]
    near_PF = near_PFF.any(2) & table.hashed_NF[later]
    enough: NDArray[np.bool_] = 2 * near_PF.sum(1) >= table.hashed_NF[later].sum(1)
    return enough
