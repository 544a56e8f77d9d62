"""True motion of drawn clips, and the measures of what stands still and what moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from examples.miniature.sharpness import decibels, edge_strength
from examples.miniature.story import StoryScene
from examples.miniature.true_motion import Traced, moving
from examples.world.film import pictures_of
from examples.world.puppet_motions import Cue, Staging
from training.phases.collapse import saturation

WALK = StoryScene(Cue("Mika", "walk", 3), "meadow")
FRAMES = range(0, 51, 3)


def test_only_the_walker_moves_before_a_camera_that_stands() -> None:
    moving_THW = moving(WALK, FRAMES)
    assert moving_THW.shape == (17, 128, 192)
    assert 0.02 < moving_THW.mean() < 0.25
    pictures = list(pictures_of([WALK.drawn("scene")]))
    changed_HW = (pictures[3] != pictures[0]).any(axis=-1)
    one, other = Traced.of(WALK, 0), Traced.of(WALK, 3)
    speeds_HW, back_HW = one.speed_to(other), other.speed_to(one)
    assert ((speeds_HW > 0) | (back_HW > 0))[changed_HW].mean() > 0.95, "what changes has moved there, or from there"
    assert 1 < np.median(speeds_HW[speeds_HW > 0]) < 20


def test_a_followed_runner_stands_and_the_place_moves() -> None:
    run = replace(WALK, cue=Cue("Mika", "run", 4, staging=Staging(phase=0.0)))
    speeds_HW = Traced.of(run, 0).speed_to(Traced.of(run, 3))
    corner = speeds_HW[:40, :40]
    assert np.allclose(corner, corner[0, 0])
    assert corner[0, 0] == pytest.approx(2 * 6.0), "two pixels of the film for each of the place"
    assert moving(run, FRAMES).mean() > 0.9


def test_a_scene_of_its_last_pose_stands_still() -> None:
    sat = replace(WALK, cue=Cue("Mika", "sit down", 3))
    assert not moving(sat, range(42, 54, 3))[1:].any()


def test_decibels_are_those_of_the_pixels_that_move_or_do_not() -> None:
    frames, others = torch.full((2, 3, 4, 6, 3), 100, dtype=torch.uint8), torch.full((2, 3, 4, 6, 3), 100).byte()
    moving_NTHW = torch.zeros(2, 3, 4, 6, dtype=torch.bool)
    moving_NTHW[0, :, :2] = True
    others[0, :, :2] += 16
    found = decibels(frames, others, moving_NTHW)
    exact = 10 * np.log10(255**2 * 12)
    assert found["moving"] == pytest.approx(20 * np.log10(255 / 16))
    assert found["still"] == pytest.approx(exact)
    assert found["all"] == pytest.approx((10 * np.log10(255**2 / 128) + exact) / 2)


def test_grey_has_no_saturation_and_blur_less_sharpness() -> None:
    dice = np.random.default_rng(0)
    grey = np.repeat(dice.integers(0, 256, (2, 16, 16, 1), dtype=np.uint8), 3, axis=-1)
    assert saturation(torch.from_numpy(grey)) == 0
    assert float(saturation(torch.tensor([[[[200, 100, 100]]]], dtype=torch.uint8))) == pytest.approx(0.5)
    assert edge_strength(grey // 2) == pytest.approx(edge_strength(grey) / 2, rel=0.02)
