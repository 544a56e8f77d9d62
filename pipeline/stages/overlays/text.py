"""Text on pictures: credits, title cards and burnt-in subtitles, found, not read.

The text detector of PP-OCRv4 (DBNet) ships inside the package rapidocr, so nothing is downloaded. Its input is 320
pixels high, which takes 35 ms on one core. Credits and most subtitles are found, and faces and leaves are mistaken for
letters ten times less often than at 480 (measured on Big Buck Bunny). At 256 it loses six of the film's 45 clips with
text. The detector sees every picture: a limit on thin strokes that keeps 96% of 570 composed texts lets six textured
pictures of ten pass as well.

One word alone is often missed at this size, or has a low score. In a film with subtitles, the lower quarter of the
pictures is therefore searched again at one and a half times the size of a clip of 480 lines, and a lower score counts:
of 177 composed words 176 are found instead of 141.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from operator import itemgetter
from threading import Lock
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.measurements import Box
from pipeline.core.onnx_network import load_network
from pipeline.stages.overlays import MODEL

_SIDE = 320
_STRIDE = 32
_PIXEL_SCORE = 0.3
_LINE_SCORE = 0.6
_TALL, _TALL_SCORE = 0.2, 0.8
"""A box taller than a fifth of the picture is a title or, more often, not text at all: it needs a higher score."""
SUBTITLE_SCORE = 0.45
"""Least score of a line in the place of subtitles, in a film that has them."""
_SUBTITLE_PART, _SUBTITLE_SIDE = 0.25, 192
"""Lower part of the picture that is searched again for subtitles, and its height for the detector, pixels."""
_LOWER = 0.8
"""Height of the picture below which lines that return at one height are subtitles."""
_ROW = 0.0125
"""Height of a row of feet of lines, in picture heights; lines at one height lie in the same row or the next."""
_SUBTITLE_ROWS = 0.17
"""Part of the picture above the lowest row of subtitles in which a second row may stand."""
_LEAST_CLIPS, _LEAST_SHARE = 3, 0.04
"""Least number and share of a film's clips that have a line at one height."""
_CREDITS_LINES = 4
"""Lines on one picture from which they are credits, which pass every height."""
_LOADING = Lock()
"""The first thread that searches holds this while it loads the detector; otherwise each would load one."""


@dataclass(frozen=True)
class Line:
    """A line of text on a picture, or what looks like one: its corners in pixels, and the detector's score, 0..1."""

    corners_42: NDArray[np.float32]
    score: float
    width: int
    """Width of the picture; `height` likewise."""
    height: int

    @property
    def is_sure(self) -> bool:
        """Return True if the line counts wherever it is."""
        sides = np.linalg.norm(self.corners_42 - np.roll(self.corners_42, 1, axis=0), axis=1)
        return self.score >= (_TALL_SCORE if sides.min() > _TALL * self.height else _LINE_SCORE)

    @property
    def is_low(self) -> bool:
        """Return True if its middle lies in the lower fifth of the picture."""
        return float(self.corners_42[:, 1].mean()) > _LOWER * self.height

    @property
    def foot(self) -> float:
        """Height of its lower edge, as a share of the picture's."""
        return float(self.corners_42[:, 1].max()) / self.height

    @property
    def row(self) -> int:
        """Return the number of the row on which it stands."""
        return round(self.foot / _ROW)

    @property
    def middle(self) -> float:
        """Return its middle, as a share of the picture's width."""
        return float(self.corners_42[:, 0].mean()) / self.width

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom, in pixels."""
        return (*self.corners_42.min(axis=0).tolist(), *self.corners_42.max(axis=0).tolist())


def find_lines(picture_HWC: NDArray[np.uint8]) -> list[Line]:
    """Return the lines on a picture, BGR: the detector makes more mistakes on gray pictures."""
    return _lines(picture_HWC, _SIDE / min(picture_HWC.shape[:2]), top=0)


@dataclass(frozen=True)
class SubtitlePlace:
    """Place of a film's subtitles: height of the lower edge and middle of the lines, as shares of the picture."""

    foot: float
    middle: float

    @classmethod
    def of(cls, clips: Sequence[Sequence[Sequence[Line]]]) -> SubtitlePlace | None:
        """Return the place where lines return in the lower fifth of a film, whatever they say; None: nowhere.

        Args:
            clips: the lines on the searched pictures of each clip.
        """
        low = [
            [line for lines in pictures for line in lines if line.is_low and line.is_sure]
            for pictures in clips
            if max(map(len, pictures), default=0) < _CREDITS_LINES
        ]
        # a line counts for its own row and the next ones, so that no limit between two rows parts equal lines
        counts = Counter(row for lines in low for row in {line.row + near for line in lines for near in (-1, 0, 1)})
        row, count = max(counts.items(), key=itemgetter(1), default=(0, 0))
        if count < max(_LEAST_CLIPS, _LEAST_SHARE * len(clips)):
            return None
        middles = [line.middle for lines in low for line in lines if abs(line.row - row) <= 1]
        return cls(row * _ROW, float(np.median(middles)))

    def find(self, picture_HWC: NDArray[np.uint8]) -> list[Line]:
        """Return the subtitles on a picture; a lower score is enough for them."""
        height = len(picture_HWC)
        top = height - round(_SUBTITLE_PART * height)
        found = _lines(picture_HWC, _SUBTITLE_SIDE / (height - top), top=top)
        return [line for line in found if line.score >= SUBTITLE_SCORE and self._has(line)]

    def _has(self, line: Line) -> bool:
        left, _, right, _ = line.box
        is_centred = left < self.middle * line.width < right
        return is_centred and self.foot - _SUBTITLE_ROWS < line.foot < self.foot + 2 * _ROW


def covered_share(lines: Sequence[Line], width: int, height: int) -> float:
    """Share of a picture that lines cover, 0..1."""
    covered_HW = np.zeros((height, width), np.uint8)
    cv2.fillPoly(covered_HW, [np.round(line.corners_42).astype(np.int32) for line in lines], 1)
    return float(covered_HW.mean())


def boxes_of(lines: Sequence[Line], width: int, height: int) -> tuple[Box, ...]:
    """Return the boxes of lines on the pictures of a clip; those that overlap by half are one."""
    joined: list[tuple[float, float, float, float]] = []
    for line in sorted(lines, key=lambda line: line.box):
        box = line.box
        while same := next((each for each in joined if max(overlap(box, each), overlap(each, box)) > 0.5), None):
            joined.remove(same)
            box = min(box[0], same[0]), min(box[1], same[1]), max(box[2], same[2]), max(box[3], same[3])
        joined.append(box)
    return tuple(
        Box(
            left=max(0, int(left)),
            top=max(0, int(top)),
            right=min(width, int(np.ceil(right))),
            bottom=min(height, int(np.ceil(bottom))),
        )
        for left, top, right, bottom in sorted(joined)
    )


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the share of a box (left, top, right, bottom) that lies in another one."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0) / max((one[2] - one[0]) * (one[3] - one[1]), 1e-6)


def _lines(picture_HWC: NDArray[np.uint8], scale: float, top: int) -> list[Line]:
    """Return the lines below a row of a picture, which the detector sees at this scale, whatever their scores."""
    height, width = picture_HWC.shape[0] - top, picture_HWC.shape[1]
    size = tuple(max(1, round(side * scale / _STRIDE)) * _STRIDE for side in (width, height))
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    resized = cv2.resize(picture_HWC[top:], size, interpolation=interpolation)
    input_1CHW = (resized.astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]
    with _LOADING:
        session, find_boxes = _detector()
    scores_11HW = session.run(None, {session.get_inputs()[0].name: input_1CHW})[0]
    boxes, scores = find_boxes(scores_11HW, (size[1], size[0]))
    shrink, shift = np.array([width / size[0], height / size[1]], np.float32), np.array([0, top], np.float32)
    return [
        Line(np.asarray(box, np.float32) * shrink + shift, float(score), width, top + height)
        for box, score in zip(boxes, scores, strict=True)
    ]


@cache
def _detector() -> tuple[Any, Any]:
    """Return the network and the box finder for its output, loaded once; both are thread-safe."""
    session = load_network((files("rapidocr") / "models" / MODEL).read_bytes())
    from rapidocr.ch_ppocr_det.utils import DBPostProcess  # imports onnxruntime, which is told something before

    boxes = DBPostProcess(thresh=_PIXEL_SCORE, box_thresh=SUBTITLE_SCORE, unclip_ratio=1.6, use_dilation=True)
    return session, boxes
