"""Second look: two scenes in a clip stand out, also amid motion, from one scene with motion, pans, poses, new light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import cv2
import numpy as np
import pytest

from examples.world.acting import fight, pan, posed, talk, walk, zoom
from examples.world.film import pictures_of
from examples.world.landscapes import Landscape
from examples.world.paintings import Painting
from examples.world.scene import Scene, Sprites, TransitionKind, mixed
from pipeline.core.config import SelectionSettings
from pipeline.stages.two_groups import second_look, two_groups
from tests.support.media.painted_scenes import A, B, Picture, acted, dissolve, painting

FRAMES = 16
EVERY = 3
"""Frames of a composed film for one of a clip."""
LENGTH = 72
DROPPED = SelectionSettings().max_two_groups


def small(pictures: Sequence[Picture]) -> Picture:
    assert len(pictures) == FRAMES
    grays = [cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY) for picture in pictures]
    return np.stack([cv2.resize(gray, (180, 120), interpolation=cv2.INTER_AREA) for gray in grays]).astype(np.uint8)


def value_of(pictures: Sequence[Picture]) -> float:
    return two_groups(small(pictures))


def clip(start: int, *scenes: Scene) -> list[Picture]:
    """Clip from the frame `start` of a film of scenes."""
    return list(islice(pictures_of(scenes), start, start + EVERY * FRAMES, EVERY))


def fighting(layout: int, seed: int) -> Scene:
    """Two figures that leap before a drawn place, all over the picture."""
    return Scene("fight", LENGTH, Landscape(layout, seed), fight("lucy", "sylvie"), 2)


def talking(name: str, x: int) -> Scene:
    return Scene("talk", LENGTH, Painting("bg meadow"), talk((name, x)))


def standing(name: str, x: int) -> Scene:
    """Small figure that stands still, at a twentieth of the picture."""
    return Scene("stand", LENGTH, Painting("bg meadow"), lambda _: (posed(name, 0, x, 700, 0.45),), 2)


def zooming(layout: int, seed: int, end: float) -> Scene:
    place = Landscape(layout, seed)
    look = zoom(place.whole, 500, 300, 1, end, LENGTH)
    return Scene("zoom", LENGTH, place, frames_per_drawing=1, look=lambda frame: look(max(frame, 0)))


def rush_in(drawing: int) -> Sprites:
    """Figure near the camera that runs in and stays."""
    return (posed("lucy", 0, min(max(-400, -400 + 300 * (drawing - 15)), 640), 1000, 2.2),)


def panning(step: float) -> Scene:
    look = pan((0, 0, 1280, 720), step)
    return Scene(f"pan {step}", LENGTH, Painting("bg panorama"), frames_per_drawing=1, look=look)


@pytest.mark.parametrize("at", [2, 13])
def test_a_cut_makes_two_groups(at: int) -> None:
    assert value_of(acted(A, at, 1) + acted(B, FRAMES - at, 1)) > DROPPED


@pytest.mark.parametrize("mixed", [1, 4, 8])
def test_a_dissolve_makes_two_groups(mixed: int) -> None:
    clean = (FRAMES - mixed) // 2
    assert value_of([A] * clean + dissolve(A, B, mixed) + [B] * (FRAMES - mixed - clean)) > DROPPED


@pytest.mark.slow
def test_a_cut_between_fights_in_places_of_one_layout_makes_two_groups() -> None:
    assert value_of(clip(30, fighting(3, 1), fighting(3, 2))) > DROPPED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "old", "new", "kind", "frames"),
    [
        (40, fighting(4, 1), Scene("hall", LENGTH, Painting("bg lecturehall")), "wipe", 20),
        (54, zooming(3, 1, 1.2), fighting(3, 2), "dissolve", 20),
        (48, talking("lucy", 500), talking("eileen", 800), "dissolve", 12),
    ],
    ids=lambda value: value.name if isinstance(value, Scene) else str(value),
)
def test_a_gradual_change_amid_motion_makes_two_groups(
    start: int, old: Scene, new: Scene, kind: TransitionKind, frames: int
) -> None:
    assert value_of(clip(start, old, replace(new, opened_by=kind, opening_frames=frames))) > DROPPED


@pytest.mark.parametrize(
    ("start", "old", "new", "frames"),
    [
        (48, standing("lucy", 500), standing("eileen", 800), 20),
        (30, Scene("hills", LENGTH, Landscape(4, 1)), Scene("like hills", LENGTH, Landscape(4, 2)), 30),
    ],
    ids=["small figures", "like hills"],
)
def test_a_dissolve_that_changes_little_makes_two_groups(start: int, old: Scene, new: Scene, frames: int) -> None:
    assert value_of(clip(start, old, replace(new, opened_by="dissolve", opening_frames=frames))) > DROPPED


def test_one_scene_makes_no_two_groups() -> None:
    wide = painting(7, 900)
    dark = cv2.convertScaleAbs(A, alpha=0.5)
    whip = [wide[:, x : x + 160] for x in [0] * 6 + [200, 450, 650] + [740] * 7]
    assert value_of([A] * FRAMES) == 0
    assert value_of(acted(A, FRAMES, 1)) < DROPPED / 2
    assert value_of([A] * 8 + [dark] * 8) < DROPPED / 2
    assert value_of([wide[:, 40 * t : 40 * t + 160] for t in range(FRAMES)]) < DROPPED
    assert value_of(whip) < DROPPED


@pytest.mark.slow
@pytest.mark.parametrize(
    "scene",
    [
        fighting(3, 1),
        zooming(3, 1, 2.6),
        panning(40),
        Scene("walk", LENGTH, Landscape(5, 1), walk("lucy", -100, 40), 2),
        Scene("rush", LENGTH, Painting("bg uni"), rush_in, 2),
        replace(fighting(6, 1), name="light", light=lambda frame: 1 if frame < 30 else 0.5),
    ],
    ids=lambda scene: scene.name,
)
def test_one_scene_amid_motion_makes_no_two_groups(scene: Scene) -> None:
    assert value_of(clip(12, scene)) < DROPPED


def test_a_light_that_rises_on_a_part_makes_no_two_groups() -> None:
    place = clip(0, Scene("place", LENGTH, Painting("bg uni")))[0]
    height, width = place.shape[:2]
    y_HW, x_HW = np.mgrid[:height, :width]
    glow_HW1 = np.exp(-(((x_HW / width - 0.6) / 0.2) ** 2) - ((y_HW / height - 0.5) / 0.3) ** 2)[..., None]
    shares = np.clip((np.arange(FRAMES) - 4) / 8, 0, 1)
    lit = [(place + (235.0 - place) * glow_HW1 * share).astype(np.uint8) for share in shares]
    assert value_of(lit) < DROPPED / 2


@pytest.mark.parametrize(
    ("frames", "fps"), [(16, 8), (33, 16), (49, 24), (81, 16), (60, Fraction(30000, 1001)), (9, 4)]
)
@pytest.mark.parametrize("bars", ["none", "letterbox", "pillarbox"])
def test_two_scenes_are_seen_at_any_rate_and_inside_bars(frames: int, fps: float, bars: str) -> None:
    places = (clip(0, Scene("place", LENGTH, Painting(name)))[0] for name in ("bg uni", "bg meadow"))
    old_HW, new_HW = (cv2.cvtColor(cv2.resize(place, (180, 120)), cv2.COLOR_BGR2GRAY) for place in places)
    shares = np.clip(np.arange(frames) / float(fps) - 0.5, 0, 1)  # a dissolve of a second
    pictures_THW = np.stack([mixed(old_HW, new_HW, share) for share in shares]).astype(np.uint8)
    barred_THW = np.random.default_rng(0).integers(16, 19, pictures_THW.shape, np.uint8)
    inside = {"none": np.s_[:], "letterbox": np.s_[:, 40:80], "pillarbox": np.s_[:, :, 60:120]}[bars]
    barred_THW[inside] = pictures_THW[inside]
    assert second_look(barred_THW, Fraction(fps)) > 0.9
    assert second_look(barred_THW[: int(0.5 * fps)], Fraction(fps)) == 0


def test_a_dark_picture_has_no_bars() -> None:
    dark_THW = np.full((FRAMES, 120, 180), 5, np.uint8)
    assert second_look(dark_THW, Fraction(8)) == 0
    dark_THW[:, 100:110, 10:30] = 200  # a lamp in a corner
    dark_THW[8:, 100:110, 10:30] = 90
    assert second_look(dark_THW, Fraction(8)) == two_groups(dark_THW)
