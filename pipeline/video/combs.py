"""Measure of combs, the traces of two moments woven into one picture, on a sample of its pixels.

A picture has a top field (lines 0, 2, ...) and a bottom field (lines 1, 3, ...). Two fields of one moment make a smooth
picture; two of different moments make combs where something moved. A pixel is combed by as much as it differs from the
lines above and below, both from the other field, less two amounts:

* its difference from the next lines of its own field, because a thin line differs from both;
* all beyond the change since the picture before, because a pattern that does not move has no combs.

Noise and fine texture look combed in every pair of fields alike, so pairs are compared: the fields of one moment have
fewer combs. All columns would cost too much; about 120 are looked at. `field_LC`: lines and columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import sqrt
from typing import TypeVar

import cv2
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

Field = NDArray[np.uint8]
T = TypeVar("T", bound=np.generic)

COLUMNS = 120
"""Least number of columns looked at, in wider pictures."""
VISIBLE = 6
"""Least gray levels by which a combed pixel stands out."""
CODING = 4
"""Gray levels by which lossy coding changes what does not move."""
LUCK = 3.0
"""Standard deviations by which a count must exceed the one it is compared with."""
FEW = 300.0
"""Sum of gray levels that is little in a whole picture: a few combed pixels."""
REPEATED = (0.25, 0.55)
"""Share of the change of the other field below which a field certainly repeats, and above which it does not."""
ALIKE = (0.6, 0.8)
"""Share of the change of the other field above which both fields moved: not certainly, certainly."""
MUCH = 3000.0
"""Sum of gray levels of changes that are not just lossy coding of small ones."""
BLOCK = (8, 16)
"""Columns and lines of a field over which combed pixels are counted: a moving mouth fills one."""
MANY = 12.0
"""Combed pixels in a block, beyond luck, at which it is certainly combed."""
_LUMA_FIRST = re.compile(r"(yuvj?4\d\dp|yuva4\d\dp|gray|nv\d\d)(9|10|12|14|16)?(le)?")


@dataclass(frozen=True)
class Fields:
    """Sampled luma of a picture's two fields."""

    top_LC: Field
    bottom_LC: Field

    @classmethod
    def of(cls, picture: VideoFrame) -> Fields:
        """Sample a decoded picture."""
        luma_HW = _luma(picture)[:, :: max(1, picture.width // COLUMNS)]
        lines = picture.height // 2
        return cls(_eight_bit(luma_HW[0 : 2 * lines : 2], picture), _eight_bit(luma_HW[1 : 2 * lines : 2], picture))

    @cached_property
    def alternation(self) -> tuple[Field, Field]:
        """Amount by which each inner top line is lighter, and darker, than the next top lines."""
        return _outlying(self.top_LC[1:-1], _limits(self.top_LC[:-2], self.top_LC[2:]))

    @cached_property
    def bottom_limits(self) -> tuple[Field, Field]:
        """Lighter and darker of the bottom lines above and below each inner top line."""
        return _limits(self.bottom_LC[:-2], self.bottom_LC[1:-1])


@dataclass(frozen=True)
class Motion:
    """Change from one picture to the next."""

    around_LC: Field
    """Largest change around each inner top line, gray levels."""
    top: float
    """Sum of the changes of the top field, gray levels; `bottom` likewise."""
    bottom: float

    @classmethod
    def between(cls, before: Fields, now: Fields) -> Motion:
        """Compare two pictures."""
        top_LC, bottom_LC = cv2.absdiff(now.top_LC, before.top_LC), cv2.absdiff(now.bottom_LC, before.bottom_LC)
        around_LC = cv2.max(cv2.max(bottom_LC[:-2], bottom_LC[1:-1]), top_LC[1:-1])
        return cls(np.asarray(around_LC, np.uint8), _sum_above(top_LC, CODING), _sum_above(bottom_LC, CODING))

    @property
    def alike(self) -> float:
        """Certainty, 0 to 1, that both fields moved."""
        less, more = sorted((self.top, self.bottom))
        return min(max((less / (more + MUCH) - ALIKE[0]) / (ALIKE[1] - ALIKE[0]), 0.0), 1.0)

    def repeats(self) -> tuple[float, float]:
        """Return the certainties, 0 to 1, that only the bottom field moved, and that only the top field did."""
        return _repeats(self.top, self.bottom), _repeats(self.bottom, self.top)


@dataclass(frozen=True)
class Combs:
    """Combed pixels of a pair of fields."""

    amount: float
    """Sum over the visibly combed pixels, gray levels."""
    squares: float
    """Sum of squares of the same."""

    def exceed(self, other: Combs, most: float) -> float:
        """Return the certainty, 0 to 1, that this pair is combed more than another; `most`: any pair's amount."""
        beyond_luck = self.amount - other.amount - LUCK * sqrt(self.squares + other.squares)
        return min(max(beyond_luck / (most / 2 + FEW), 0.0), 1.0)


def combs(top: Fields, bottom: Fields, motion: Motion) -> Combs:
    """Measure the combs of a pair of fields: the top field of one picture and the bottom field of another."""
    (lighter_LC, darker_LC), (light_LC, dark_LC) = _outlying(top.top_LC[1:-1], bottom.bottom_limits), top.alternation
    combed_LC = _visible(cv2.max(cv2.subtract(lighter_LC, light_LC), cv2.subtract(darker_LC, dark_LC)), motion)
    return Combs(cv2.norm(combed_LC, cv2.NORM_L1), cv2.norm(combed_LC, cv2.NORM_L2SQR))


def certainly_combed(top: Fields, bottom: Fields, motion: Motion) -> float:
    """Return the certainty, 0 to 1, that two fields are of different moments, by their most combed block.

    Pixels that differ more within their field than across are counted against it: in noise both are equally frequent.
    """
    (lighter_LC, darker_LC), (light_LC, dark_LC) = _outlying(top.top_LC[1:-1], bottom.bottom_limits), top.alternation
    combed_LC = cv2.max(cv2.subtract(lighter_LC, light_LC), cv2.subtract(darker_LC, dark_LC))
    smooth_LC = cv2.max(cv2.subtract(light_LC, lighter_LC), cv2.subtract(dark_LC, darker_LC))
    combed_B, smooth_B = (_counts(_visible(each_LC, motion)) for each_LC in (combed_LC, smooth_LC))
    expected_B = np.maximum(smooth_B, smooth_B.mean())
    beyond_luck_B = combed_B - expected_B - (LUCK + 1) * np.sqrt(2 * expected_B)
    return float(np.clip(beyond_luck_B.max(initial=0.0) / MANY, 0.0, 1.0))


def top_field_first(pictures: Iterable[Fields]) -> bool:
    """Return True if the top fields of consecutive interlaced pictures are shown first.

    Then a top field is closer to the bottom field of the picture before than a bottom field to the top field before.
    """
    nearer = 0.0
    for before, now in pairwise(pictures):
        nearer += cv2.norm(before.top_LC, now.bottom_LC, cv2.NORM_L1)
        nearer -= cv2.norm(now.top_LC, before.bottom_LC, cv2.NORM_L1)
    return nearer >= 0


def _limits(one_LC: Field, other_LC: Field) -> tuple[Field, Field]:
    return np.asarray(cv2.max(one_LC, other_LC), np.uint8), np.asarray(cv2.min(one_LC, other_LC), np.uint8)


def _outlying(middle_LC: Field, limits: tuple[Field, Field]) -> tuple[Field, Field]:
    lighter_LC, darker_LC = cv2.subtract(middle_LC, limits[0]), cv2.subtract(limits[1], middle_LC)
    return np.asarray(lighter_LC, np.uint8), np.asarray(darker_LC, np.uint8)


def _visible(amount_LC: cv2.typing.MatLike, motion: Motion) -> Field:
    seen_LC = cv2.threshold(cv2.min(amount_LC, motion.around_LC), VISIBLE - 1, 0, cv2.THRESH_TOZERO)[1]
    return np.asarray(seen_LC, np.uint8)


def _sum_above(amount_LC: cv2.typing.MatLike, least: int) -> float:
    return cv2.norm(cv2.threshold(amount_LC, least, 0, cv2.THRESH_TOZERO)[1], cv2.NORM_L1)


def _repeats(change: float, other_change: float) -> float:
    certain, doubtful = REPEATED
    like_other = (change + FEW / 2) / (other_change + FEW / 2)
    return min(max((doubtful - like_other) / (doubtful - certain), 0.0), 1.0)


def _counts(amount_LC: Field) -> NDArray[np.float64]:
    """Number of marked pixels in each block; blocks overlap by half, so that none splits a combed part."""
    columns, lines = BLOCK
    padded_LC = np.pad(amount_LC > 0, ((0, -amount_LC.shape[0] % lines), (0, -amount_LC.shape[1] % columns)))
    halves = padded_LC.reshape(padded_LC.shape[0] // (lines // 2), lines // 2, -1, columns // 2).sum(axis=(1, 3))
    return np.asarray(halves[:-1, :-1] + halves[1:, :-1] + halves[:-1, 1:] + halves[1:, 1:], np.float64)


def _luma(picture: VideoFrame) -> NDArray[np.uint8] | NDArray[np.uint16]:
    known = _LUMA_FIRST.fullmatch(picture.format.name)
    plane = picture.planes[0] if known else picture.reformat(format="gray").planes[0]
    if known is None or known[2] is None:
        return _rows(np.frombuffer(memoryview(plane), np.uint8), plane.line_size, picture)
    return _rows(np.frombuffer(memoryview(plane), np.uint16), plane.line_size // 2, picture)


def _rows(values: NDArray[T], row: int, picture: VideoFrame) -> NDArray[T]:
    return values.reshape(-1, row)[: picture.height, : picture.width]


def _eight_bit(lines_LC: NDArray[np.uint8] | NDArray[np.uint16], picture: VideoFrame) -> Field:
    if lines_LC.dtype == np.uint16:
        return np.ascontiguousarray(lines_LC >> (picture.format.components[0].bits - 8), np.uint8)
    return np.ascontiguousarray(lines_LC, np.uint8)
