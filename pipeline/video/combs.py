"""Combs: measure of the traces of two moments woven into one picture, on a sample of its pixels.

A picture has a top field (lines 0, 2, ...) and a bottom field (lines 1, 3, ...). Two fields of one moment make a smooth
picture; two of different moments make combs where something moved. A pixel is combed by as much as it differs from the
lines above and below, both from the other field, less two amounts:

* its difference from the next lines of its own field, because a thin line differs from both;
* at most the change since the last picture, because a pattern that does not move has no combs.

What differs more within its field than across is counted against the combs: in noise both are equally frequent.
All columns would cost too much, so every fourth or so is looked at. Fields are arrays of lines and columns, `field_LC`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import cv2
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

Field = NDArray[np.uint8]

COLUMNS = 160
"""Least number of columns looked at, in wider pictures."""
BLOCK = (8, 16)
"""Columns and lines of a field over which combed pixels are counted: a moving mouth fills one."""
VISIBLE = 10
"""Least gray levels by which a combed pixel stands out."""
LUCK = 3.0
"""Standard deviations by which combed pixels must outnumber those expected in noise."""
SURE = 12.0
"""Combed pixels in a block beyond those, at which a picture is certainly combed."""
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
    def alternation_LC(self) -> tuple[Field, Field]:
        """Amount by which each inner top line is lighter, and darker, than the next top lines."""
        return _outlying(self.top_LC[1:-1], self.top_LC[:-2], self.top_LC[2:])

    def woven(self, before: Fields) -> tuple[Fields, Fields]:
        """Weave with the picture before: its bottom field and this top field, then the other two."""
        return Fields(self.top_LC, before.bottom_LC), Fields(before.top_LC, self.bottom_LC)


def motion(now: Fields, before: Fields) -> Field:
    """Return the change since the picture before around each inner top line, gray levels."""
    bottom_LC = cv2.absdiff(now.bottom_LC, before.bottom_LC)
    around_LC = cv2.max(bottom_LC[:-2], bottom_LC[1:-1])
    return np.asarray(cv2.max(around_LC, cv2.absdiff(now.top_LC, before.top_LC)[1:-1]), np.uint8)


def combs(fields: Fields, motion_LC: Field) -> float:
    """Return the certainty that two fields are of different moments, 0 to 1, in the most combed block."""
    across = _outlying(fields.top_LC[1:-1], fields.bottom_LC[:-2], fields.bottom_LC[1:-1])
    within = fields.alternation_LC
    combed_LC = cv2.max(*(cv2.subtract(a, w) for a, w in zip(across, within, strict=True)))
    if not _visible(combed_LC, motion_LC).any():
        return 0.0
    smooth_LC = cv2.max(*(cv2.subtract(w, a) for a, w in zip(across, within, strict=True)))
    combed_B, smooth_B = (_counts(_visible(each, motion_LC)) for each in (combed_LC, smooth_LC))
    beyond_luck_B = combed_B - smooth_B - LUCK * np.sqrt(combed_B + smooth_B)
    return float(np.clip(beyond_luck_B.max(initial=0.0) / SURE, 0.0, 1.0))


def top_field_first(pictures: Iterable[Fields]) -> bool:
    """Return True if the top fields are shown first: nearer to the bottom fields before than bottom fields to top ones.

    Args:
        pictures: consecutive pictures of interlaced video.
    """
    distances = [0.0, 0.0]
    for before, now in pairwise(pictures):
        for order, pair in enumerate(now.woven(before)):
            distances[order] += cv2.norm(pair.top_LC, pair.bottom_LC, cv2.NORM_L1)
    return distances[0] <= distances[1]


def _outlying(middle_LC: Field, above_LC: Field, below_LC: Field) -> tuple[Field, Field]:
    lighter_LC = cv2.min(cv2.subtract(middle_LC, above_LC), cv2.subtract(middle_LC, below_LC))
    darker_LC = cv2.min(cv2.subtract(above_LC, middle_LC), cv2.subtract(below_LC, middle_LC))
    return np.asarray(lighter_LC, np.uint8), np.asarray(darker_LC, np.uint8)


def _visible(amount_LC: cv2.typing.MatLike, motion_LC: Field) -> NDArray[np.bool_]:
    return np.asarray(cv2.min(amount_LC, motion_LC)) >= VISIBLE


def _counts(marked_LC: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Number of marked pixels in each block; blocks overlap by half, so that none splits what is combed."""
    columns, lines = BLOCK
    padded_LC = np.pad(marked_LC, ((0, -marked_LC.shape[0] % lines), (0, -marked_LC.shape[1] % columns)))
    halves = padded_LC.reshape(padded_LC.shape[0] // (lines // 2), lines // 2, -1, columns // 2).sum(axis=(1, 3))
    return (halves[:-1, :-1] + halves[1:, :-1] + halves[:-1, 1:] + halves[1:, 1:]).astype(np.float64)


def _luma(picture: VideoFrame) -> NDArray[np.uint8] | NDArray[np.uint16]:
    known = _LUMA_FIRST.fullmatch(picture.format.name)
    plane = picture.planes[0] if known else picture.reformat(format="gray").planes[0]
    deep = known is not None and known[2] is not None
    lines_HW = np.frombuffer(memoryview(plane), np.uint16 if deep else np.uint8)
    return lines_HW.reshape(-1, plane.line_size // (2 if deep else 1))[: picture.height, : picture.width]


def _eight_bit(lines_LC: NDArray[np.uint8] | NDArray[np.uint16], picture: VideoFrame) -> Field:
    if lines_LC.dtype == np.uint8:
        return np.ascontiguousarray(lines_LC, np.uint8)
    return np.ascontiguousarray(lines_LC >> (picture.format.components[0].bits - 8), np.uint8)
