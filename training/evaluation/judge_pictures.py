"""Pictures for the judge: one per agent and window, with a row of five frames per scene."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from pipeline.captions.messages import Picture
from pipeline.captions.pictures import spread
from pipeline.video.clip_files import read_frames

FRAMES = 5
_WIDTH, _HEIGHT, _GAP, _QUALITY = 240, 160, 6, 90
PICTURES = f"{FRAMES} frames of {_WIDTH}x{_HEIGHT} a row, quality {_QUALITY}"
"""The pictures as an ingredient of every reply."""


def story_picture(clips: Sequence[Path]) -> Picture:
    """Paint a picture of scenes: row i is five frames of clip i.

    Raises:
        RecordError: a clip cannot be read.
    """
    sheet_HWC = np.full((len(clips) * (_HEIGHT + _GAP) - _GAP, FRAMES * _WIDTH, 3), 255, np.uint8)
    for row, clip in enumerate(clips):
        frames_THWC = read_frames(clip, lambda count: spread(count, FRAMES), _WIDTH, _HEIGHT)
        top = row * (_HEIGHT + _GAP)
        sheet_HWC[top : top + _HEIGHT] = np.hstack(list(frames_THWC))
    _, content = cv2.imencode(".jpg", sheet_HWC, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return Picture(content.tobytes(), tiles=12)
