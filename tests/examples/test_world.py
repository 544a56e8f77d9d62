"""The composer: its pictures show what its truth says, frame by frame, and films come back as they were written."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from examples.world.acting import drift, pan, zoom
from examples.world.film import FPS, pictures_of
from examples.world.paintings import Painting
from examples.world.places import DrawnPlace, Figure
from examples.world.scene import Mix, Scene, Sprites, TransitionKind
from examples.world.scene_changes import short_film
from examples.world.textures import Picture
from examples.world.truth import truth_about
from examples.world.writer import write_film
from pipeline.core.errors import UserError
from pipeline.video.film_reader import FilmReader

WIDTH, HEIGHT = 64, 48
SIDE = 8
BLUE, RED = (200, 0, 0), (0, 0, 200)


def square(name: str, colour: tuple[int, int, int], fine: int = 2) -> Figure:
    """A square of SIDE pixels in a corner of its canvas."""
    skin_HWC = np.full((fine * HEIGHT, fine * WIDTH, 3), colour, np.uint8)
    mask_HW = np.zeros(skin_HWC.shape[:2], bool)
    mask_HW[: fine * SIDE, : fine * SIDE] = True
    return Figure(name, skin_HWC, mask_HW, (SIDE / 2, SIDE / 2))


def place(name: str = "plain", gray: int = 60, fine: int = 2) -> DrawnPlace:
    """A ground of one grey with two squares to put on it."""
    ground_HWC = np.full((fine * HEIGHT, fine * WIDTH, 3), gray, np.uint8)
    return DrawnPlace(name, ground_HWC, (WIDTH, HEIGHT), (square("Blue", BLUE), square("Red", RED)), fine)


def middle_of(picture_HWC: Picture, channel: int, gray: int = 60) -> tuple[float, float]:
    """Centre of mass of what is bluer (0) or redder (2) than the ground."""
    weight_HW = np.clip(picture_HWC[..., channel].astype(float) - gray, 0, None)
    rows_HW, columns_HW = np.mgrid[0.5:HEIGHT, 0.5:WIDTH]
    total = weight_HW.sum()
    return float((weight_HW * columns_HW).sum() / total), float((weight_HW * rows_HW).sum() / total)


def both(drawing: int) -> Sprites:
    """Two characters of different speed."""
    return *drift("Blue", (10, 12), (2.5, 0))(drawing), *drift("Red", (40, 36), (-1, -0.5))(drawing)


@pytest.mark.parametrize("on", [1, 2, 3])
def test_every_character_is_where_the_truth_says_and_moved_as_far(on: int) -> None:
    scene = Scene("two", 12, place(), both, on)
    truth, seen = truth_about([scene], FPS), list(pictures_of([scene]))
    assert truth.scenes[0].characters == ("Blue", "Red")
    for frame, picture_HWC in zip(truth.frames, seen, strict=True):
        for character, channel in zip(frame.characters, (0, 2), strict=True):
            assert middle_of(picture_HWC, channel) == pytest.approx(character.position, abs=0.02)
    blue_px = [frame.characters[0].speed_px for frame in truth.frames]
    assert blue_px == [2.5 if number and number % on == 0 else 0 for number in range(12)]


def test_a_camera_carries_characters_along_and_its_motion_is_told_apart() -> None:
    ground = place()
    scene = Scene("panned", 6, ground, drift("Blue", (40, 24), (1, 0)), 1, look=pan(ground.whole, 3, 1))
    truth = truth_about([scene], FPS)
    for frame, picture_HWC in zip(truth.frames, pictures_of([scene]), strict=True):
        assert middle_of(picture_HWC, 0) == pytest.approx(frame.characters[0].position, abs=0.02)
    assert [frame.camera.moved for frame in truth.frames] == [(0, 0)] + [(3, 1)] * 5
    assert {frame.characters[0].moved for frame in truth.frames[1:]} == {(1, 0)}


def test_a_zoom_is_told_and_so_is_what_it_makes_of_a_speed() -> None:
    ground = place()
    scene = Scene("zoomed", 5, ground, drift("Blue", (32, 24), (1, 0)), 1, look=zoom(ground.whole, 32, 24, 1, 2, 5))
    truth = truth_about([scene], FPS)
    assert np.prod([frame.camera.zoom for frame in truth.frames]) == pytest.approx(2)
    assert truth.frames[-1].characters[0].moved == pytest.approx((2, 0))
    *_, last_HWC = pictures_of([scene])
    assert middle_of(last_HWC, 0) == pytest.approx(truth.frames[-1].characters[0].position, abs=0.3)
    assert ((last_HWC[..., 0] > 130).sum()) == pytest.approx((2 * SIDE) ** 2, rel=0.1)


def test_every_mixed_frame_holds_the_share_of_the_new_scene_that_the_truth_says() -> None:
    old, new = place("old", 40), place("new", 200)
    scenes = [Scene("old", 10, old), Scene("new", 10, new, opened_by="dissolve", opening_frames=8)]
    truth, seen = truth_about(scenes, FPS), list(pictures_of(scenes))
    mixed = [number for number, frame in enumerate(truth.frames) if frame.mix]
    assert mixed == list(range(6, 14))
    for frame, picture_HWC in zip(truth.frames, seen, strict=True):
        newer = frame.mix.share if frame.mix else float(frame.scene)
        assert picture_HWC.mean() == pytest.approx(40 + 160 * newer, abs=0.6)
    assert truth.frames[6].mix == Mix("dissolve", scene=1, frame=-4, share=1 / 9)
    assert truth.frames[10].mix == Mix("dissolve", scene=0, frame=10, share=5 / 9)
    (transition,) = truth.transitions
    assert (transition.last_clean_before, transition.frame, transition.first_clean_after) == (5, 10, 14)


@pytest.mark.parametrize("kind", ["wipe", "iris-in", "iris-out"])
def test_in_a_wipe_or_iris_every_pixel_shows_one_scene_and_the_new_one_grows(kind: TransitionKind) -> None:
    scenes = [
        Scene("old", 20, place("old", 40)),
        Scene("new", 20, place("new", 200), opened_by=kind, opening_frames=16),
    ]
    new = [(picture_HWC == 200).mean() for picture_HWC in pictures_of(scenes)]
    assert all(np.isin(picture_HWC, (40, 200)).all() for picture_HWC in pictures_of(scenes))
    assert new == sorted(new)
    assert (new[11], new[28]) == (0, 1)  # 16 mixed frames between
    assert len({share for share in new if 0 < share < 1}) > 8


def test_nobody_is_seen_in_a_flash() -> None:
    scene = Scene("flash", 6, place(), both, flashes=((2, 2),))
    truth = truth_about([scene, scene], FPS)
    white = [number for number, picture_HWC in enumerate(pictures_of([scene, scene])) if picture_HWC.min() == 255]
    assert white == [number for number, frame in enumerate(truth.frames) if frame.white] == [2, 3, 8, 9]
    assert truth.scenes[1].flashes == ((8, 2),)
    assert all(bool(frame.characters) != frame.white for frame in truth.frames)


def test_the_truth_about_the_short_film_needs_no_art_and_covers_every_frame() -> None:
    truth = truth_about(short_film(), FPS)
    assert len(truth.frames) == truth.scenes[-1].end_frame == 702
    for number in range(len(truth.frames)):
        scene = truth.scene_at(number)
        assert scene.start_frame <= number < scene.end_frame
        assert truth.frames[number].place == scene.background
    walking = truth.frames[120 + 2].characters[0]
    assert (walking.name, walking.moved[0]) == ("eileen", 12)  # 24 pixels of a world twice as wide as the picture
    assert {frame.camera.moved for frame in truth.frames[193:240]} == {(32, 0)}


@pytest.mark.parametrize("channels", ["bgr24", "rgb24"])
def test_a_written_film_shows_the_pictures_in_their_colours(tmp_path: Path, channels: str) -> None:
    scene = Scene("two", 9, place(), both, 1)
    pictures = list(pictures_of([scene]))
    path = write_film(tmp_path / "film.mkv", pictures, fps=Fraction(24000, 1001), channels=channels)
    with FilmReader(path) as reader:
        decoded = [frame.picture.to_ndarray(format="bgr24") for frame in reader.frames()]
    assert len(decoded) == 9
    for picture_HWC, found_HWC in zip(pictures, decoded, strict=True):
        for channel in (0, 2):
            assert middle_of(found_HWC, channel, 80) == pytest.approx(middle_of(picture_HWC, channel, 80), abs=0.3)


def test_what_cannot_be_painted_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="apt-get"):
        write_film(tmp_path / "film.mp4", pictures_of([Scene("nowhere", 1, Painting("bg nowhere"))]), fps=24)
    assert not (tmp_path / "film.mp4").exists()
