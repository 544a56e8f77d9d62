"""Motion benchmark: the truth of its clips, and the measurement of a few of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.motion import Case, all_cases, measure, table_of
from pipeline.core.config import MotionSettings


def test_held_drawings_are_equal_frames_and_others_differ() -> None:
    frames_THWC = Case("both", 4.0, 3, "painted").frames()
    changes = [bool(np.any(one != other)) for one, other in pairwise(frames_THWC)]
    assert changes == [step % 3 == 2 for step in range(15)]


def test_a_camera_shifts_the_whole_picture_by_its_speed() -> None:
    frames_THWC = Case("camera", 8.0, 1, "painted").frames()
    assert np.array_equal(frames_THWC[0][:, 8:], frames_THWC[1][:, :-8])


def test_the_figure_moves_by_its_speed_before_a_still_background() -> None:
    one_HWC, other_HWC = Case("figure", 8.0, 1, "painted").frames()[:2]
    assert np.array_equal(one_HWC[200:280, 320:400], other_HWC[200:280, 328:408])
    assert np.array_equal(one_HWC[:, :180], other_HWC[:, :180])


@pytest.mark.slow
def test_the_default_measures_what_moves() -> None:
    cases = [case for case in all_cases() if (case.speed_px, case.held, case.texture) == (8.0, 2, "painted")]
    measured = list(measure(MotionSettings(), cases))
    assert [one.case.kind for one in measured] == ["figure", "camera", "both"]
    assert all(one.level_is_right and one.drawings_are_right for one in measured)
    assert [one.scope_error for one in measured] == pytest.approx([0, 0, 0], abs=0.06)
    assert [one.camera_error for one in measured] == pytest.approx([0, 0, 0], abs=0.02)
    assert table_of(measured, "dis@0.5").row_count == 5  # three motions, one speed, all
