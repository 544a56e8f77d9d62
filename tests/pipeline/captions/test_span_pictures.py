"""Pictures of a span: evenly spaced over its time, from the files of the clips that it covers."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from pipeline.captions.questions import ClipPictures, view_span
from pipeline.core.store import FilmFolder
from tests.support import records


def grays(views: ClipPictures) -> list[int]:
    jpegs = (np.frombuffer(frame.jpeg, np.uint8) for frame in views.frames)
    return [round(float(cv2.imdecode(jpeg, cv2.IMREAD_GRAYSCALE).mean()), -1) for jpeg in jpegs]


def test_pictures_are_spread_over_the_span(tmp_path: Path) -> None:
    folder = FilmFolder(tmp_path / "film-12345678")
    values = (40, 120, 200)
    clips = [
        records.written_clip(folder, np.full((16, 64, 96, 3), value, np.uint8), 2.0 * place, crf=18, index=place)
        for place, value in enumerate(values)
    ]
    paths = [folder.clip_path(clip.clip_id) for clip in clips]
    assert grays(view_span(paths, clips, 0.0, 121 / 24)) == pytest.approx([40] * 3 + [120] * 3 + [200] * 2, abs=10)
    assert grays(view_span(paths[:2], clips[:2], 0.5, 5.54)) == pytest.approx([40] * 2 + [120] * 6, abs=10)
