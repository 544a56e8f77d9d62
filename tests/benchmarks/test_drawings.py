"""Drawings of figures before places that pan, counted in composed clips."""

from __future__ import annotations

import pytest

from benchmarks.drawings import FRAMES, Pan, measure

TWOS = Pan("painted", "pan", 4.0, 2, "walks", 1.0, stays=True)
PANS = (
    TWOS,
    Pan("cel", "pan", 9.0, 3, "walks", 0.7, stays=False),
    Pan("painted", "tilt", 4.0, 4, "waves", 0.8, stays=False),
    Pan("cel", "pan", 4.0, 1, "walks", 1.0, stays=True),
)
HELD = Pan("painted", "pan", 4.0, FRAMES, "walks", 1.0, stays=True)


@pytest.mark.slow
def test_drawings_of_a_figure_are_counted_before_a_place_that_pans() -> None:
    found = dict(measure([*PANS, HELD]))
    assert [found[pan] for pan in PANS] == [pytest.approx(pan.truth, abs=1) for pan in PANS]
    assert found[HELD] == FRAMES, "if only the camera moves, every frame counts"
