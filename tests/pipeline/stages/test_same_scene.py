"""Pixels followed through pictures: a pan is followed to its end, another scene is lost."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pipeline.stages.same_scene import follow
from tests.support.media.painted_scenes import HEIGHT, WIDTH, A, B, Picture, painting

WIDE = painting(7, 600)


def gray(picture: Picture) -> Picture:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY), np.uint8)


def view(left: int, size: float = 1.0) -> Picture:
    """Picture of the wide place, from its column `left`, closer up by a factor."""
    part = WIDE[: round(HEIGHT / size), left : left + round(WIDTH / size)]
    return np.asarray(cv2.resize(part, (WIDTH, HEIGHT)), np.uint8)


def test_a_pan_is_followed_to_its_end_and_another_scene_is_lost() -> None:
    panned = follow([gray(view(8 * step)) for step in range(9)])
    assert panned.length == pytest.approx(64 / WIDTH, rel=0.1)
    assert panned.edges > 0.7
    assert panned.is_lost_HW.mean() < 0.2
    cut = follow([gray(A)] * 4 + [gray(B)] * 4)
    assert cut.edges < 0.28
    assert cut.is_lost_HW.mean() > 0.4
