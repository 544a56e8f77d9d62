"""Crop of a film: borders of every colour and shade, real letterboxes, and pictures without borders."""

from pathlib import Path

import numpy as np
import pytest

from examples.world.textures import Picture
from pipeline.core.config import CropSettings
from pipeline.core.progress import silent
from pipeline.core.records import Crop
from pipeline.core.stage import perform
from pipeline.stages.crop import FindCrop
from pipeline.stages.cropping.film_crops import CropJob, find_crops
from pipeline.stages.probe import probe
from tests.support.media.films import make_film, planned

EVERY_SECOND_FRAME = {"g": "2", "crf": "14", "preset": "ultrafast"}
"""Encoder options for many keyframes in a short film."""


def crop_of(path: Path, settings: CropSettings | None = None) -> Crop:
    film = probe(path, "film-01234567", "01234567" * 8)
    [crop] = find_crops(CropJob(film, settings or CropSettings()), silent)
    return crop


def rectangle(crop: Crop) -> tuple[int, int, int, int]:
    return crop.left, crop.top, crop.width, crop.height


@pytest.mark.parametrize(
    ("borders", "expected"),
    [
        pytest.param((0, 0, 0, 0), (0, 0, 320, 180), id="none"),
        pytest.param((0, 22, 0, 22), (0, 22, 320, 136), id="letterbox"),
        pytest.param((40, 0, 40, 0), (40, 0, 240, 180), id="pillarbox"),
        pytest.param((40, 22, 40, 22), (40, 22, 240, 136), id="both"),
        pytest.param((7, 13, 3, 5), (6, 12, 312, 164), id="odd borders keep a line rather than lose one"),
        pytest.param((2, 0, 0, 0), (2, 0, 318, 180), id="a thin line on one side"),
    ],
)
def test_borders(tmp_path: Path, borders: tuple[int, int, int, int], expected: tuple[int, int, int, int]) -> None:
    crop = crop_of(make_film(tmp_path / "film.mp4", frames=16, borders=borders, options=EVERY_SECOND_FRAME))
    assert rectangle(crop) == expected
    assert crop.frames_used == 8
    assert crop.warnings == ()


def test_noise_in_the_borders(tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def grain(_: int, picture: Picture) -> None:
        picture += random.integers(0, 29, picture.shape, dtype=np.uint8)  # pixels reach 28, their mean is below black

    path = make_film(
        tmp_path / "film.mp4",
        frames=8,
        size=(1280, 180),
        borders=(0, 22, 0, 22),
        paint=grain,
        options=EVERY_SECOND_FRAME | {"crf": "6"},
    )
    assert rectangle(crop_of(path, CropSettings(black_luma=18))) == (0, 22, 1280, 136)


def test_dark_frames_do_not_count(tmp_path: Path) -> None:
    def night(number: int, picture: Picture) -> None:
        if number % 4 < 2:
            picture[:] = 0
            picture[80:100, 150:170] = 90  # a lamp

    path = make_film(tmp_path / "film.mp4", frames=24, paint=night, options=EVERY_SECOND_FRAME)
    crop = crop_of(path)
    assert rectangle(crop) == (0, 0, 320, 180)
    assert crop.frames_used == 6


def test_nothing_but_dark_frames_keeps_the_whole_picture(tmp_path: Path) -> None:
    def night(_: int, picture: Picture) -> None:
        picture[:] = 6

    crop = crop_of(make_film(tmp_path / "film.mp4", frames=8, paint=night, options=EVERY_SECOND_FRAME))
    assert (rectangle(crop), crop.frames_used) == ((0, 0, 320, 180), 0)
    assert crop.warnings == ("borders not looked for: none of 4 keyframes is bright enough to judge by",)


def test_an_edge_that_fades_to_black_is_not_a_border(tmp_path: Path) -> None:
    shade = np.clip((np.arange(180) - 20) / 100, 0, 1)[:, None, None]  # 20 rows of black, then a slow rise

    def fade(_: int, picture: Picture) -> None:
        picture[:] = picture * shade

    path = make_film(tmp_path / "film.mp4", frames=16, barcode=False, paint=fade, options=EVERY_SECOND_FRAME)
    assert rectangle(crop_of(path)) == (0, 0, 320, 180)


def test_part_of_the_film_with_larger_borders_is_named(tmp_path: Path) -> None:
    def letterbox_second_half(number: int, picture: Picture) -> None:
        if number >= 48:
            picture[:22], picture[-22:] = 0, 0

    path = make_film(tmp_path / "film.mp4", frames=96, paint=letterbox_second_half, options=EVERY_SECOND_FRAME)
    crop = crop_of(path)
    assert rectangle(crop) == (0, 0, 320, 180)
    (warning,) = crop.warnings
    assert warning.startswith("24 of 48 keyframes have larger black borders (left 0, top 22, right 0, bottom 22 px)")
    assert "between about 0:00:02 and 0:00:04" in warning


@pytest.mark.parametrize(
    ("odd", "expected", "warning"),
    [
        (1, (0, 22, 320, 136), "1 of 48 keyframes show picture outside the crop, near 0:00:02"),
        (2, (0, 0, 320, 180), "46 of 48 keyframes have larger black borders"),
    ],
)
def test_one_odd_keyframe_is_ignored_with_a_warning_and_two_keep_the_picture(
    tmp_path: Path, odd: int, expected: tuple[int, int, int, int], warning: str
) -> None:
    def card(number: int, picture: Picture) -> None:
        if 48 <= number < 48 + 2 * odd:
            picture[:] = 150

    path = make_film(tmp_path / "film.mp4", frames=96, borders=(0, 22, 0, 22), paint=card, options=EVERY_SECOND_FRAME)
    crop = crop_of(path)
    assert rectangle(crop) == expected
    assert crop.warnings[0].startswith(warning)


def test_a_small_remaining_picture_is_a_warning(tmp_path: Path) -> None:
    path = make_film(tmp_path / "film.mp4", frames=16, borders=(80, 30, 80, 30), options=EVERY_SECOND_FRAME)
    crop = crop_of(path)
    assert rectangle(crop) == (80, 30, 160, 120)
    assert crop.warnings == ("only 33% of the picture lies inside the black borders",)


def test_borders_found_on_few_keyframes_are_a_warning(tmp_path: Path) -> None:
    def logo(number: int, picture: Picture) -> None:
        if number < 4:
            picture[:] = 0
            picture[50:130, 90:230] = 230

    crop = crop_of(make_film(tmp_path / "film.mp4", frames=24, paint=logo, options={"g": "250", "sc_threshold": "0"}))
    assert rectangle(crop) == (90, 50, 140, 80)
    assert crop.warnings[0].startswith("black borders found on only 1 keyframe(s)")


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_borders_are_those_of_the_upright_picture(tmp_path: Path, rotation: int) -> None:
    path = make_film(
        tmp_path / "film.mp4",
        frames=16,
        size=(180, 320),
        borders=(0, 20, 0, 40),
        rotation=rotation,
        options=EVERY_SECOND_FRAME,
    )
    assert rectangle(crop_of(path)) == (0, 20, 180, 260)


def test_a_disabled_crop_keeps_the_whole_picture(tmp_path: Path) -> None:
    path = make_film(tmp_path / "film.mp4", frames=8, borders=(0, 22, 0, 22))
    [crop] = FindCrop(CropSettings(enabled=False)).run(planned(tmp_path, path), silent).tables["crop"]
    assert isinstance(crop, Crop)
    assert (rectangle(crop), crop.frames_used, crop.warnings) == ((0, 0, 320, 180), 0, ())


@pytest.mark.film
def test_big_buck_bunny_loses_no_pixel(tmp_path: Path, bunny: Path) -> None:
    folder = planned(tmp_path, bunny)
    perform(FindCrop(CropSettings()), folder, silent)
    (crop,) = folder.read("crop", Crop)
    assert rectangle(crop) == (0, 0, 1280, 720)
    assert 50 <= crop.frames_used <= 60
    assert crop.warnings == ()
