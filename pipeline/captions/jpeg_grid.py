"""JPEG grid: four encoded squares joined to one picture, two by two, without encoding their pixels again.

JPEG codes blocks of pixels by their difference from the block before. A square here restarts after each row of blocks
(restart markers), so its rows do not depend on each other, and a row of the grid is the rows of two squares one after
the other. It decodes to the same pixels as a grid encoded as a whole, and takes a twentieth of the time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import cv2

from pipeline.video.containers import Picture

QUALITY = 90
BLOCK_PIXELS = 16
"""Side of a block with half the resolution in colour; the side of a square is a multiple of it."""
_SIZE = b"\xff\xc0\x00\x11\x08%b%b"
"""Start of the frame header, up to the height and the width."""
_SCAN = b"\xff\xda\x00\x0c"
_SCAN_HEADER_BYTES = 14
_END = b"\xff\xd9"
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")


def encoded_square(picture_HWC: Picture) -> bytes:
    """Encode a square so that `joined` can put it into a grid."""
    settings = {
        cv2.IMWRITE_JPEG_QUALITY: QUALITY,
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR: cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
        cv2.IMWRITE_JPEG_RST_INTERVAL: len(picture_HWC) // BLOCK_PIXELS,
    }
    _, content = cv2.imencode(".jpg", picture_HWC, list(chain.from_iterable(settings.items())))
    return content.tobytes()


def joined(squares: Sequence[bytes], pixels: int) -> bytes:
    """Return four squares of one size as a grid: the first two above the others.

    Args:
        squares: results of `encoded_square`.
        pixels: side of a square.
    """
    start = squares[0].index(_SCAN) + _SCAN_HEADER_BYTES
    header = squares[0][:start].replace(_size(pixels), _size(2 * pixels))
    rows = [_RESTART.split(square[start : -len(_END)]) for square in squares]
    pieces = [piece for pair in (rows[:2], rows[2:]) for row in zip(*pair, strict=True) for piece in row]
    marks = [b"", *(b"\xff%c" % (0xD0 + number % 8) for number in range(len(pieces) - 1))]
    return b"".join((header, *chain.from_iterable(zip(marks, pieces, strict=True)), _END))


def _size(pixels: int) -> bytes:
    side = pixels.to_bytes(2, "big")
    return _SIZE % (side, side)
