"""Gradual transitions in painted pictures: dissolves, figures, wipes, fades, what is none, and false detections."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from examples.world.scene import TransitionKind, mixed
from tests.support.media.painted_scenes import (
    BLACK,
    WHITE,
    WIDTH,
    A,
    B,
    C,
    Picture,
    acted,
    cuts_in,
    dissolve,
    painting,
    wild,
)


@pytest.mark.parametrize("seed", [1, 4])
def test_a_dissolve_between_wild_scenes_is_one_boundary_without_its_mixed_frames(seed: int) -> None:
    """The jumps of its drawings look like cuts."""
    old, new = (wild(painting(number), 80, 3, number) for number in (seed, 10 + seed))
    mix = [mixed(old[40 + step], new[step], (step + 1) / 37) for step in range(36)]
    (cut,) = cuts_in(old[:40] + mix + new[36:])
    assert cut.kind == "dissolve"
    assert 40 - 36 <= cut.last_clean_before < 40
    assert 76 <= cut.first_clean_after <= 76 + 36


def test_real_cuts_beside_a_dissolve_between_wild_scenes_stay() -> None:
    old, new = (wild(painting(number), 80, 3, number) for number in (1, 11))
    mix = [mixed(old[30 + step], new[step], (step + 1) / 37) for step in range(36)]
    pictures = [C] * 70 + old[:30] + mix + new[36:56] + acted(B, 60, 2)
    first, dissolve_, last = cuts_in(pictures)
    assert (first.frame, first.kind, first.last_clean_before, first.first_clean_after) == (70, "cut", 69, 70)
    assert (last.frame, last.kind, last.last_clean_before, last.first_clean_after) == (156, "cut", 155, 156)
    assert dissolve_.kind == "dissolve"
    assert dissolve_.last_clean_before < 100 < 136 <= dissolve_.first_clean_after


@pytest.mark.parametrize("frames", [6, 12, 24, 40])
def test_a_dissolve_is_found_with_all_its_mixed_frames(frames: int) -> None:
    (cut,) = cuts_in([A] * 60 + dissolve(A, B, frames) + [B] * 60)
    assert cut.kind == "dissolve"
    assert abs(cut.frame - (60 + frames / 2)) <= 2
    assert 55 <= cut.last_clean_before <= 60  # a frame with 6 % of the other scene still counts as clean
    assert 60 + frames - 1 <= cut.first_clean_after <= 60 + frames + 5


@pytest.mark.parametrize("frames", [8, 20, 50])
def test_figures_that_dissolve_before_a_place_that_stays_are_found(frames: int) -> None:
    old, new = A.copy(), A.copy()
    old[20:, 20:60], new[10:, 90:140] = painting(8)[20:, 20:60], painting(9)[10:, 90:140]
    (cut,) = cuts_in([old] * 70 + dissolve(old, new, frames) + [new] * 70)
    assert cut.kind == "dissolve"
    assert abs(cut.last_clean_before - 69) <= 3
    assert abs(cut.first_clean_after - 70 - frames) <= 3


@pytest.mark.parametrize("kind", ["wipe", "iris-in", "iris-out"])
@pytest.mark.parametrize("frames", [10, 24])
def test_wipes_and_irises_are_found(kind: TransitionKind, frames: int) -> None:
    shares = [(frame + 1) / (frames + 1) for frame in range(frames)]
    (cut,) = cuts_in([A] * 70 + [mixed(A, B, share, kind) for share in shares] + [B] * 70)
    assert cut.kind == "wipe"
    assert 67 <= cut.last_clean_before <= 70 + frames // 4
    assert 70 + 3 * frames // 4 <= cut.first_clean_after <= 73 + frames


def iris_of(kind: TransitionKind, action: list[Picture], frames: int) -> tuple[list[Picture], int]:
    """Return black pictures and an iris of some frames that opens on a scene, or backwards, and the iris's start."""
    shares = [(frame + 1) / (frames + 1) for frame in range(frames)] + [1.0] * (len(action) - frames)
    film = [BLACK] * 60 + [mixed(BLACK, *drawn, "iris-in") for drawn in zip(action, shares, strict=True)]
    return (film, 60) if kind == "iris-in" else (film[::-1], len(film) - 60 - frames)


@pytest.mark.parametrize(("seed", "frames"), [(8, 16), (2, 28)])
@pytest.mark.parametrize("kind", ["iris-in", "iris-out"])
def test_an_iris_into_or_out_of_wild_action_is_found(kind: TransitionKind, seed: int, frames: int) -> None:
    film, start = iris_of(kind, wild(painting(seed), 140, 2, seed), frames)
    (cut,) = cuts_in(film)
    assert cut.kind == "wipe"
    assert start <= cut.frame <= start + frames


@pytest.mark.parametrize(("frames", "dimmed", "late"), [(16, 0.5, 13), (28, 0.7, 9)])
@pytest.mark.parametrize("kind", ["iris-in", "iris-out"])
def test_an_iris_beside_changing_light_keeps_its_place(
    kind: TransitionKind, frames: int, dimmed: float, late: int
) -> None:
    lights = np.interp(np.arange(140), [0, 60], [dimmed, 1])
    film, start = iris_of(kind, [(A * light).astype(np.uint8) for light in lights], frames)
    (cut,) = cuts_in(film)
    assert cut.kind == "wipe"
    assert start <= cut.frame <= start + frames
    assert start - 9 <= cut.last_clean_before < cut.first_clean_after <= start + frames + late


@pytest.mark.parametrize(("seed", "frames", "black"), [(3, 10, 12), (5, 10, 48), (2, 22, 24)])
def test_an_iris_that_closes_and_one_that_opens_are_two_changes(seed: int, frames: int, black: int) -> None:
    shares, old, new = [(frame + 1) / (frames + 1) for frame in range(frames)], painting(seed), painting(seed + 10)
    closes, opens = (
        [mixed(one, other, share, kind) for share in shares]
        for one, other, kind in ((old, BLACK, "iris-out"), (BLACK, new, "iris-in"))
    )
    first, last = cuts_in([old] * 70 + closes + [BLACK] * black + opens + [new] * 70)
    middle = 70 + frames / 2
    assert abs(first.frame - middle) <= frames / 2
    assert first.first_clean_after <= 72 + frames
    assert abs(last.frame - middle - frames - black) <= frames / 2
    assert last.last_clean_before >= 68 + frames + black


def test_a_dissolve_is_found_while_the_camera_moves_slowly() -> None:
    old, new = painting(4, 400), painting(5, 400)
    looks = [
        (old[:, at : at + WIDTH], new[:, 200 - at : 200 - at + WIDTH]) for at in (frame // 4 for frame in range(140))
    ]
    shares = np.clip((np.arange(140) - 60) / 17, 0, 1)
    pictures = [mixed(left, right, share) for (left, right), share in zip(looks, shares, strict=True)]
    (cut,) = cuts_in(pictures)
    assert cut.kind == "dissolve"
    assert abs(cut.frame - 69) <= 3


def test_a_dissolve_beside_a_pan_leaves_no_mixed_frames() -> None:
    """While everything moves, the dissolve looks shorter than it is."""
    frames = 48
    wide = painting(11, 400)
    pan = [np.ascontiguousarray(wide[:, at : at + WIDTH]) for at in range(60 + frames)]
    mix = [mixed(painting(1), pan[step], (step + 1) / (frames + 1)) for step in range(frames)]
    pictures = [painting(1)] * 60 + mix + pan[frames:]
    (into,), (out_of,) = cuts_in(pictures), cuts_in(pictures[::-1])
    for cut in (into, out_of):
        assert cut.kind == "dissolve"
        assert 55 <= cut.last_clean_before <= 61  # a frame with 6 % of the other scene still counts as clean
        assert 60 + frames - 2 <= cut.first_clean_after <= 60 + frames + 5


@pytest.mark.parametrize("light", [0.35, 0.4])
def test_a_figure_like_its_place_is_found_at_night(light: float) -> None:
    figure = A.copy()
    figure[20:, 60:100] = painting(8)[20:, 60:100]
    old, new = (cv2.convertScaleAbs(picture, alpha=light) for picture in (A, figure))
    (cut,) = cuts_in([old] * 70 + dissolve(old, new, 20) + [new] * 70)
    assert cut.kind == "dissolve"
    assert abs(cut.frame - 80) <= 3


@pytest.mark.parametrize("blank", [BLACK, WHITE])
def test_a_fade_out_and_a_fade_in_leave_no_mixed_frame(blank: Picture) -> None:
    cuts = cuts_in([A] * 60 + dissolve(A, blank, 15) + [blank] * 20 + dissolve(blank, B, 15) + [B] * 60)
    assert {cut.kind for cut in cuts} == {"fade"}
    assert 55 <= cuts[0].last_clean_before <= 61
    assert 108 <= cuts[-1].first_clean_after <= 114


def test_changing_light_and_titles_are_not_transitions() -> None:
    dark = cv2.convertScaleAbs(A, alpha=0.5)
    titled = cv2.putText(A.copy(), "TITLE", (20, 55), cv2.FONT_HERSHEY_SIMPLEX, 1.4, (255, 255, 255), 6)
    lit = [A] * 40 + dissolve(A, dark, 15) + [dark] * 40 + dissolve(dark, A, 15)
    assert cuts_in(lit + [A] * 40 + dissolve(A, titled, 12) + [titled] * 40 + dissolve(titled, A, 12) + [A] * 40) == []


@pytest.mark.parametrize("step", [2, 6, 12])
def test_a_pan_has_cuts_only_at_its_ends(step: int) -> None:
    world = painting(7, WIDTH + 60 * step)
    pan = [world[:, step * frame : step * frame + WIDTH] for frame in range(60)]
    assert [cut.frame for cut in cuts_in([A] * 30 + pan + acted(B, 30, 1))] == [30, 90]
