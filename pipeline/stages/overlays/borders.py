"""Black borders of pictures, from the levels of their rows and columns.

A border is black up to a sharp line. Bars end so; the dark edges of a night scene or a vignette fade out.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

LEVEL_PERCENTILE = 90
"""Percentile of luma used as the level of a row, so that a station's logo in a bar or a scratch is ignored."""
SAMPLES = 256
"""Pixels to which a row is averaged first, which removes noise."""

UNEVEN = 0.02
"""Largest difference of the bars on both sides, as a share of the picture; a dark edge has no like."""


class Borders(NamedTuple):
    """Widths of the black borders, pixels."""

    left: int
    top: int
    right: int
    bottom: int


def row_levels(luma_HW: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Level of each row: the 90th percentile of its luma, noise averaged out."""
    height, width = luma_HW.shape
    narrow = cv2.resize(luma_HW, (min(width, SAMPLES), height), interpolation=cv2.INTER_AREA)
    return np.asarray(np.percentile(narrow, LEVEL_PERCENTILE, axis=1), np.float32)


def column_levels(luma_HW: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Level of each column, as of rows."""
    return row_levels(np.asarray(cv2.transpose(luma_HW), np.uint8))


def borders_of(rows_H: NDArray[np.float32], columns_W: NDArray[np.float32], black_luma: float) -> Borders:
    """Return the borders by the levels of rows and columns; a border pixel is darker than `black_luma`."""
    top, bottom = _ends(rows_H, black_luma)
    left, right = _ends(columns_W, black_luma)
    return Borders(left, top, right, bottom)


def bars_of(pictures_THW: NDArray[np.uint8], black_luma: float) -> Borders:
    """Return the borders that all pictures of a clip have, if both sides have about the same."""
    lightest_HW = pictures_THW.max(axis=0)
    found = borders_of(row_levels(lightest_HW), column_levels(lightest_HW), black_luma)
    across, down = (
        abs(one - other) <= max(4, UNEVEN * size)
        for one, other, size in (
            (found.left, found.right, lightest_HW.shape[1]),
            (found.top, found.bottom, lightest_HW.shape[0]),
        )
    )
    return Borders(*(width if is_even else 0 for width, is_even in zip(found, (across, down) * 2, strict=True)))


def _ends(levels: NDArray[np.float32], black_luma: float) -> tuple[int, int]:
    """Count the black lines at the start and at the end; 0 if they do not end in a sharp line."""
    lit = np.flatnonzero(levels >= black_luma)
    if not len(lit):
        return 0, 0
    start, end = int(lit[0]), len(levels) - 1 - int(lit[-1])
    return (
        start if _is_sharp(levels, start, black_luma) else 0,
        end if _is_sharp(levels[::-1], end, black_luma) else 0,
    )


def _is_sharp(levels: NDArray[np.float32], border: int, black_luma: float) -> bool:
    """Return true if the picture lines next to the border are brighter than its own by more than `black_luma`."""
    if not border:
        return False
    reach = max(4, len(levels) // 100)
    before, behind = levels[max(0, border - reach) : border], levels[border : border + reach]
    return bool(behind.max() - before.min() > black_luma)
