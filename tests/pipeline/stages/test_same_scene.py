"""Comparison of two pictures: a scene that moves is found again, another scene is not; letters are no figures."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pipeline.stages.same_scene import follow, found_again, is_title
from tests.support.media.painted_scenes import HEIGHT, WIDTH, A, B, C, Picture, acted, painting

WIDE = painting(7, 600)


def gray(picture: Picture) -> Picture:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY), np.uint8)


def view(left: int, size: float = 1.0) -> Picture:
    """Picture of the wide place, from its column `left`, closer up by a factor."""
    part = WIDE[: round(HEIGHT / size), left : left + round(WIDTH / size)]
    return np.asarray(cv2.resize(part, (WIDTH, HEIGHT)), np.uint8)


def test_a_scene_that_moves_is_found_again() -> None:
    assert found_again(A, A) == 1
    assert found_again(view(0), view(16)) == pytest.approx(1 - 16 / WIDTH, abs=0.1)
    assert found_again(view(0), view(8, 1.15)) > 0.5
    one, *_, other = acted(A, 2, 1)
    assert 0.3 < found_again(one, other) < 1


@pytest.mark.parametrize(("one", "other"), [(A, B), (B, C), (A, view(0))])
def test_another_scene_is_not_found(one: Picture, other: Picture) -> None:
    assert found_again(one, other) < 0.06


def test_a_pan_is_followed_to_its_end_and_another_scene_is_lost() -> None:
    panned = follow([gray(view(8 * step)) for step in range(9)])
    assert panned.length == pytest.approx(64 / WIDTH, rel=0.1)
    assert panned.edges > 0.7
    assert panned.is_lost_HW.mean() < 0.2
    cut = follow([gray(A)] * 4 + [gray(B)] * 4)
    assert cut.edges < 0.28
    assert cut.is_lost_HW.mean() > 0.4


@pytest.mark.parametrize("thickness", [1, 3, 6])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_letters_are_a_title_also_in_the_dark(thickness: int, share: float) -> None:
    place = cv2.convertScaleAbs(A, alpha=share)
    titled = cv2.putText(place.copy(), "TITLE", (20, 55), cv2.FONT_HERSHEY_SIMPLEX, 1.4, (255, 255, 255), thickness)
    assert is_title(gray(place), gray(titled))


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_figure_is_no_title_also_in_the_dark(share: float) -> None:
    figure = A.copy()
    figure[10:, 60:110] = C[10:, 60:110]
    assert not is_title(*(gray(cv2.convertScaleAbs(picture, alpha=share)) for picture in (A, figure)))
