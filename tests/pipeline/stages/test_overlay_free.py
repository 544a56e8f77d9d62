"""Crops around logos and subtitles: the cheapest part of the picture, and real film with overlays drawn over it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from examples.world.writer import write_film
from pipeline.core.config import ClipSettings, CropSettings, FilmSettings, LooksSettings, SceneSettings
from pipeline.core.measurements import Looks
from pipeline.core.progress import silent
from pipeline.core.records import Crop
from pipeline.core.stage import perform
from pipeline.stages.crop import FindCrop
from pipeline.stages.cropping.overlay_free import MOST_COST, Part, choose_part, largest_without
from pipeline.stages.cut import Cut
from pipeline.stages.looks import MeasureLooks
from pipeline.video.containers import Picture
from pipeline.video.film_reader import FilmReader
from tests.support import records
from tests.support.media.films import planned

BAND, LOGO = Part(top=0.85), Part(left=0.88, top=0.05, right=0.96, bottom=0.13)
LINES = ("We should go back before it rains.", "Where did you put it?", "I told you not to open that door!", "No.")


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        pytest.param([], Part(), id="nothing"),
        pytest.param([BAND], Part(bottom=0.85), id="subtitles: from below"),
        pytest.param([LOGO], Part(right=0.88), id="logo: from the nearer side"),
        pytest.param([BAND, LOGO], Part(right=0.88, bottom=0.85), id="both"),
        pytest.param([BAND, Part(0.1, 0.9, 0.2, 0.95)], Part(bottom=0.85), id="a logo among the subtitles is free"),
    ],
)
def test_the_largest_part_without_overlays(boxes: list[Part], expected: Part) -> None:
    assert largest_without(boxes) == expected


def test_a_crop_keeps_its_bars_and_even_sides() -> None:
    whole = records.crop(width=320, height=180)
    letterboxed = records.crop(top=22, width=320, height=136, start_seconds=5)
    part = Part(right=0.9, bottom=0.85)
    assert [
        (one.left, one.top, one.width, one.height) for one in (part.of(whole, whole), part.of(letterboxed, whole))
    ] == [
        (0, 0, 288, 152),
        (0, 22, 288, 130),
    ]


def test_a_part_that_costs_too_much_stays_and_is_named() -> None:
    avoided = choose_part({"subtitles": [Part(top=0.7)], "logos": [LOGO]})
    assert (avoided.part, avoided.notes) == (Part(right=0.88), ("logos cut off, with 12% of the picture",))
    assert avoided.warnings == ("subtitles stay in the picture: avoiding them costs 30% of it",)


def test_the_crop_depends_on_the_setting_only_if_it_is_on() -> None:
    plain, avoiding = FindCrop(CropSettings()), FindCrop(CropSettings(), avoid_overlays=True)
    assert avoiding.ingredients() == plain.ingredients() | {"avoid_overlays": True}
    assert "avoid_overlays" not in ClipSettings().ingredients()


@pytest.fixture(scope="module")
def pictures(bunny: Path) -> list[Picture]:
    """One minute of the film after its title, 640x360 at 8 frames per second."""
    taken = []
    with FilmReader(bunny) as reader:
        for frame in reader.frames(108):
            if frame.seconds >= 48 and frame.ordinal % 3 == 0:
                small = frame.picture.reformat(width=640, height=360, format="bgr24")
                taken.append(np.asarray(small.to_ndarray(), np.uint8))
    return taken


def drawn(picture_HWC: Picture, number: int) -> Picture:
    """Draw a corner logo, and a line of text for two seconds of three."""
    image = Image.fromarray(picture_HWC)
    draw = ImageDraw.Draw(image)
    draw.text((611, 10), "TV7", "white", ImageFont.load_default(14), stroke_width=1)
    if number % 24 < 16:
        text = LINES[number // 24 % len(LINES)]
        draw.text((320, 352), text, "white", ImageFont.load_default(18), "md", stroke_width=2, stroke_fill="black")
    return np.array(image)


@pytest.mark.film
@pytest.mark.slow
def test_clips_of_real_film_show_no_overlay(tmp_path: Path, pictures: list[Picture]) -> None:
    folder = planned(tmp_path, filmed(tmp_path, map(drawn, pictures, count())))
    perform(FindCrop(CropSettings(), avoid_overlays=True), folder, silent)
    perform(Cut(FilmSettings(), SceneSettings(), ClipSettings(avoid_overlays=True)), folder, silent)
    perform(MeasureLooks(LooksSettings()), folder, silent)
    [crop], looks = folder.read("crop", Crop), folder.read("looks", Looks)
    assert len(looks) > 10
    assert not any(row.subtitle_lines or row.logo_boxes for row in looks)
    assert sum((row.text_share or 0) > 0.01 for row in looks) <= 1  # the detector takes the hare's ears for letters
    assert 0 < 1 - crop.width * crop.height / (640 * 360) < MOST_COST
    assert crop.warnings == ()
    assert [note.partition(" cut off")[0] for note in crop.notes] == ["subtitles and logos"]


@pytest.mark.film
@pytest.mark.slow
def test_nothing_is_cut_off_a_real_film_without_overlays(tmp_path: Path, pictures: list[Picture]) -> None:
    folder = planned(tmp_path, filmed(tmp_path, pictures))
    perform(FindCrop(CropSettings(), avoid_overlays=True), folder, silent)
    [crop] = folder.read("crop", Crop)
    assert (crop.width, crop.height, crop.notes, crop.warnings) == (640, 360, (), ())


def filmed(folder: Path, pictures: Iterable[Picture]) -> Path:
    """Write a film of the pictures."""
    return write_film(folder / "film.mp4", pictures, fps=8, options={"g": "16", "preset": "superfast", "crf": "20"})
