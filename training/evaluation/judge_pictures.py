"""Pictures for the judge: one per agent and window, with a row of five frames per scene.

A frame is scaled into a field of one size and keeps its proportions; the rest of the field is white.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import cv2
import numpy as np

from pipeline.captions.endpoint import Picture
from pipeline.captions.questions import spread
from pipeline.video.clip_files import clip_shape, read_frames

FRAMES = 5
FIELD = _WIDTH, _HEIGHT = 240, 160
_GAP, _QUALITY = 6, 90
PICTURES = f"{FRAMES} frames in fields of {_WIDTH}x{_HEIGHT} a row, in proportion, quality {_QUALITY}"
"""The pictures as an ingredient of every reply."""
MOST_KEPT = 64
"""Pictures in memory, more than the requests in flight show of different windows; 4 MB."""


def story_picture(clips: Sequence[Path]) -> Picture:
    """Paint a picture of scenes: row i is five frames of clip i.

    Raises:
        RecordError: a clip cannot be read.
    """
    sheet_HWC = np.full((len(clips) * (_HEIGHT + _GAP) - _GAP, FRAMES * _WIDTH, 3), 255, np.uint8)
    for row, clip in enumerate(clips):
        width, height = clip_shape(clip).within(_WIDTH, _HEIGHT)
        frames_THWC = read_frames(clip, lambda count: spread(count, FRAMES), width, height)
        top = row * (_HEIGHT + _GAP) + (_HEIGHT - height) // 2
        for column, frame_HWC in enumerate(frames_THWC):
            left = column * _WIDTH + (_WIDTH - width) // 2
            sheet_HWC[top : top + height, left : left + width] = frame_HWC
    _, content = cv2.imencode(".jpg", sheet_HWC, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return Picture(content.tobytes(), tiles=12)


class StoryPictures:
    """Pictures of the windows at work: each is painted once for all repeats of its window. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[tuple[Path, ...], _Painting] = {}

    def of(self, clips: Sequence[Path]) -> Picture:
        """Return the picture of scenes.

        Raises:
            RecordError: a clip cannot be read.
        """
        with self._lock:
            painting = self._kept.setdefault(tuple(clips), _Painting(clips))
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return painting.picture()


@dataclass
class _Painting:
    """A picture that is painted when it is first asked for; others that ask wait for it."""

    clips: Sequence[Path]
    lock: Lock = field(default_factory=Lock)
    painted: Picture | None = None

    def picture(self) -> Picture:
        with self.lock:
            if self.painted is None:
                self.painted = story_picture(self.clips)
            return self.painted
