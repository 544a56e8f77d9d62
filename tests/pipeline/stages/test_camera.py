"""Camera named from composed drawings of known moves, and left undecided where nothing tells it."""

from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np
import pytest

from benchmarks.camera import MOVES, Case, Picture
from pipeline.core.measurements import CameraDirection, CameraKind
from pipeline.stages.camera import CameraTracker, corners
from pipeline.stages.motion import DRAWING_SCALE
from pipeline.stages.optical_flow import scaled

NOISE = np.random.default_rng(3)


def drawings_of(frames_THWC: Picture) -> list[Picture]:
    return [scaled(cv2.cvtColor(frame_HWC, cv2.COLOR_BGR2GRAY), DRAWING_SCALE) for frame_HWC in frames_THWC]


def camera_of(drawings: list[Picture]) -> tuple[CameraKind | None, CameraDirection | None]:
    tracker = CameraTracker()
    for before_HW, after_HW in pairwise(drawings):
        tracker.step(before_HW, after_HW)
    return tracker.result(drawings[0])


@pytest.mark.parametrize(("kind", "direction"), MOVES)
def test_a_move_is_named_although_a_figure_and_a_nearer_plane_move_otherwise(
    kind: CameraKind, direction: CameraDirection | None
) -> None:
    assert camera_of(drawings_of(Case(kind, direction, 6.0, "painted").frames())) == (kind, direction)


def test_the_place_is_tracked_to_a_tenth_of_a_pixel() -> None:
    drawings = drawings_of(Case("pan", "right", 6.0, "painted").frames())
    tracker = CameraTracker()
    steps = [tracker.step(before_HW, after_HW) for before_HW, after_HW in pairwise(drawings)]
    for step in steps:
        assert step
        assert step.transform == pytest.approx(np.array([[1, 0, -3], [0, 1, 0]]), abs=0.1)
        assert 0.5 < step.share < 1


def test_a_picture_without_detail_has_no_camera() -> None:
    flat_HW = np.full((240, 360), 90, np.uint8)
    assert len(corners(flat_HW)) == 0
    assert camera_of([flat_HW] * 6) == (None, None)
    assert CameraTracker().result(flat_HW) == (None, None)


def test_a_repeated_drawing_with_detail_is_static() -> None:
    [drawing_HW] = drawings_of(Case("static", None, 2.0, "painted").frames(1))
    assert CameraTracker().result(drawing_HW) == ("static", None)


def test_pictures_that_have_nothing_in_common_are_undecided() -> None:
    assert camera_of([NOISE.integers(0, 255, (240, 360), dtype=np.uint8) for _ in range(6)]) == (None, None)


def test_a_figure_before_an_empty_sky_is_undecided() -> None:
    """The figure rests in the picture, but the sky may pass behind it unseen."""
    [drawing_HW] = drawings_of(Case("static", None, 2.0, "painted").frames(1))
    sky_HW = np.full_like(drawing_HW, 180)
    sky_HW[100:220, 110:250] = drawing_HW[100:220, 110:250]
    assert camera_of([sky_HW] * 6) == (None, None)


def test_a_pan_that_is_lost_for_some_steps_is_not_static() -> None:
    """A whip between two rests: the steps in which it is too fast leave the clip undecided."""
    rest, other = (drawings_of(Case("static", None, 2.0, name).frames(1)) * 7 for name in ("painted", "cel"))
    assert camera_of([*rest, *other]) == (None, None)
