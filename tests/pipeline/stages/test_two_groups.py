"""Second look: two scenes in a clip stand out from one scene with motion, pans, poses and changing light."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pipeline.stages.gradual import tiny_gray
from pipeline.stages.two_groups import two_groups
from tests.pipeline.stages.test_scenes import A, B, Picture, acted, dissolve, painting

FRAMES = 16
DROPPED = 0.35


def value_of(pictures: list[Picture]) -> float:
    assert len(pictures) == FRAMES
    return two_groups(np.stack([tiny_gray(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)) for picture in pictures]))


@pytest.mark.parametrize("at", [2, 5, 8, 13])
def test_a_cut_makes_two_groups(at: int) -> None:
    assert value_of(acted(A, at, 1) + acted(B, FRAMES - at, 1)) > DROPPED


@pytest.mark.parametrize("mixed", [1, 4, 8])
def test_a_dissolve_makes_two_groups(mixed: int) -> None:
    clean = (FRAMES - mixed) // 2
    assert value_of([A] * clean + dissolve(A, B, mixed) + [B] * (FRAMES - mixed - clean)) > DROPPED


def test_a_wipe_makes_two_groups() -> None:
    wiped = [np.hstack([B[:, :x], A[:, x:]]) for x in range(20, 160, 28)]
    assert value_of([A] * 5 + wiped + [B] * (FRAMES - 5 - len(wiped))) > DROPPED


def test_one_scene_makes_no_two_groups() -> None:
    wide = painting(7, 900)
    dark = cv2.convertScaleAbs(A, alpha=0.5)
    whip = [wide[:, x : x + 160] for x in [0] * 6 + [200, 450, 650] + [740] * 7]
    assert value_of([A] * FRAMES) == 0
    assert value_of(acted(A, FRAMES, 1)) < DROPPED / 2
    assert value_of([A] * 8 + [dark] * 8) < DROPPED / 2
    assert value_of([wide[:, 40 * t : 40 * t + 160] for t in range(FRAMES)]) < DROPPED
    assert value_of(whip) < DROPPED
