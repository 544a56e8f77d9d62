"""Looks of encoded clips: light, stillness despite coding noise, lips, text, and broken files."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pipeline.core.config import LooksSettings
from pipeline.core.measurements import Bars, Looks
from pipeline.core.progress import silent
from pipeline.core.records import Clip, RecordError
from pipeline.core.stage import perform
from pipeline.core.store import FilmFolder
from pipeline.stages.clip_looks import measure_looks
from pipeline.stages.looks import MeasureLooks, spread
from pipeline.stages.overlays.text import Line, covered_share, find_lines
from pipeline.video.clip_files import read_clip, read_clip_gray, write_clip
from tests.support import records
from tests.support.datasets.made_dataset import make_dataset
from tests.support.media.moving_pictures import pan, textured

Picture = NDArray[np.uint8]
WIDTH, HEIGHT, FRAMES = 720, 480, 16


def painting(seed: int) -> Picture:
    """Colourful textured picture."""
    random = np.random.default_rng(seed)
    coarse = random.integers(20, 236, (8, 12, 3), dtype=np.uint8)
    fine = random.integers(0, 40, (HEIGHT // 4, WIDTH // 4, 3), dtype=np.uint8)
    picture = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    return np.asarray(cv2.add(picture, cv2.resize(fine, (WIDTH, HEIGHT))), np.uint8)


def lettered(picture_HWC: Picture, lines: Sequence[str], top: int, size: int = 24) -> Picture:
    """White letters with a dark outline, as subtitles are."""
    image = Image.fromarray(picture_HWC)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=size)
    for row, line in enumerate(lines):
        place = (WIDTH // 2, top + 2 * size * row)
        draw.text(place, line, (255, 255, 255), font, anchor="mm", stroke_width=2, stroke_fill=(0, 0, 0))
    return np.array(image)


def coded(path: Path, pictures: Sequence[Picture], crf: int = 17) -> Path:
    write_clip(path, pictures, Fraction(8), crf)
    return path


def looks_of(path: Path) -> Looks:
    return measure_looks("clip", Fraction(8), read_clip_gray(path))


def sure_lines(picture_HWC: Picture) -> list[Line]:
    return [line for line in find_lines(picture_HWC) if line.is_sure]


def test_light_and_dark_are_those_of_the_picture(tmp_path: Path) -> None:
    half_black = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    half_black[:, WIDTH // 2 :] = 200
    looks = looks_of(coded(tmp_path / "clip.mp4", [half_black] * FRAMES))
    assert looks.light == pytest.approx(100, abs=2)
    assert looks.contrast == pytest.approx(100, abs=2)
    assert looks.dark_share == pytest.approx(0.5, abs=0.01)
    assert len(looks.hashes) == FRAMES
    assert {len(digits) for digits in looks.hashes} == {64}


@pytest.mark.parametrize("crf", [17, 23])
@pytest.mark.parametrize("grain", [0, 5])
def test_a_held_drawing_is_still_despite_coding_noise(tmp_path: Path, grain: int, crf: int) -> None:
    random = np.random.default_rng(0)
    noise = [random.normal(0, grain, (HEIGHT, WIDTH, 1)) for _ in range(FRAMES)]
    pictures = [np.clip(painting(2) + layer, 0, 255).astype(np.uint8) for layer in noise]
    assert looks_of(coded(tmp_path / "clip.mp4", pictures, crf)).still_share == 1


@pytest.mark.parametrize(("across", "down"), [(0, 0), (4, 2)])
def test_moving_lips_anywhere_are_not_still(tmp_path: Path, across: int, down: int) -> None:
    pictures = []
    for frame in range(FRAMES):
        picture = painting(3)
        cv2.ellipse(picture, (360 + across, 200 + down), (28, 28), 0, 0, 360, (170, 200, 240), -1)
        opening = 1 + 2 * (frame // 4 % 2)
        cv2.ellipse(picture, (360 + across, 210 + down), (3, opening), 0, 0, 360, (130, 160, 200), -1)
        pictures.append(picture)
    assert looks_of(coded(tmp_path / "clip.mp4", pictures, 23)).still_share == pytest.approx(12 / 15)


def test_a_pan_by_half_a_pixel_over_a_soft_background_is_not_still(tmp_path: Path) -> None:
    path = coded(tmp_path / "clip.mp4", list(pan(textured(), 0.5, 0, frames=FRAMES)), 23)
    assert looks_of(path).still_share == 0


def test_subtitles_are_found_and_textures_are_not(tmp_path: Path) -> None:
    bare = coded(tmp_path / "bare.mp4", [painting(5)] * FRAMES)
    line = lettered(painting(5), ["We should go back before it rains"], top=440)
    subtitled = coded(tmp_path / "subtitled.mp4", [line] * FRAMES)
    assert not sure_lines(read_clip(bare)[0])
    (found,) = sure_lines(read_clip(subtitled)[0])
    assert 0.01 < covered_share([found], WIDTH, HEIGHT) < 0.06


def test_rolling_credits_are_many_lines() -> None:
    names = ["SACHA GOEDEGEBURE", "ANDREAS GORALCZYK", "ENRICO VALENZA", "NATHAN VEGDAHL", "WILLIAM REYNISH"]
    black = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    assert len(sure_lines(lettered(black, names, top=160, size=18))) >= 4


def test_text_on_part_of_a_clip_is_found_if_enough_frames_are_examined() -> None:
    line = lettered(painting(6), ["Three years later"], top=240, size=40)
    frames_THWC = np.stack([painting(6)] * 10 + [line] * 6)
    assert not any(sure_lines(frames_THWC[index]) for index in spread(1, FRAMES))
    assert any(sure_lines(frames_THWC[index]) for index in spread(2, FRAMES))


def film_of(root: Path, pictures: Sequence[Picture]) -> FilmFolder:
    """A film of a clip of four equal frames in each scene."""
    folder = make_dataset(root, films=1).folders()[0]
    rows = [
        records.written_clip(folder, np.stack([picture] * 4), 4.0 * number, crf=23, scene=number, index=number)
        for number, picture in enumerate(pictures)
    ]
    folder.write("clips", rows)
    return folder


def test_a_word_alone_is_found_in_a_film_with_subtitles(tmp_path: Path) -> None:
    lines = {3: "We should go back before it rains", 5: "I told you not to open that door", 8: "Where is it?", 9: "No."}
    pictures = [painting(seed) for seed in range(12)]
    for number, line in lines.items():
        pictures[number] = lettered(pictures[number], [line], top=440, size=28)
    folder = film_of(tmp_path, pictures)
    [*rows] = MeasureLooks(LooksSettings(), threads=2).run(folder, silent).tables["looks"]
    assert [number for number, row in enumerate(rows) if row.subtitle_lines] == list(lines)
    (box,) = rows[9].text_boxes
    assert 330 < box.left < box.right < 390
    assert 410 < box.top < box.bottom < 470


@pytest.mark.parametrize("opacity", [0.2, 1])
def test_a_logo_is_found_by_its_place(tmp_path: Path, opacity: float) -> None:
    pictures = [painting(seed) for seed in range(12)]
    branded = [cv2.addWeighted(lettered(each, ["TV7"], 60, 40), opacity, each, 1 - opacity, 0) for each in pictures]
    stage = MeasureLooks(LooksSettings(text=False), threads=2)
    [*rows] = stage.run(film_of(tmp_path / "branded", branded), silent).tables["looks"]
    assert all(len(row.logo_boxes) == 1 for row in rows)
    (box,) = rows[0].logo_boxes
    assert 290 < box.left < 335
    assert 385 < box.right < 430
    assert 15 < box.top < 50
    assert 70 < box.bottom < 105
    [*clean] = stage.run(film_of(tmp_path / "clean", pictures), silent).tables["looks"]
    assert all(row.logo_boxes == () for row in clean)


def test_a_faint_word_of_thin_letters_is_a_logo(tmp_path: Path) -> None:
    pictures = [painting(seed) for seed in range(12)]
    branded = [cv2.addWeighted(lettered(each, ["anime"], 60, 24), 0.08, each, 0.92, 0) for each in pictures]
    rows = MeasureLooks(LooksSettings(text=False), threads=2).run(film_of(tmp_path, branded), silent).tables["looks"]
    (box,) = rows[0].logo_boxes
    assert all(row.logo_boxes == (box,) for row in rows)
    assert 305 < box.left < box.right < 415
    assert 40 < box.top < box.bottom < 80


def test_a_dim_side_of_the_pictures_is_no_logo(tmp_path: Path) -> None:
    pictures = [painting(seed) for seed in range(12)]
    for picture in pictures:
        picture[:, -12:] //= 3
    rows = MeasureLooks(LooksSettings(text=False), threads=2).run(film_of(tmp_path, pictures), silent).tables["looks"]
    assert all(row.logo_boxes == () for row in rows)


def test_too_few_scenes_or_one_background_tell_nothing_about_logos(tmp_path: Path) -> None:
    stage = MeasureLooks(LooksSettings(text=False))
    for name, seeds in (("few", range(7)), ("one room", [0] * 12)):
        rows = stage.run(film_of(tmp_path / name, [painting(seed) for seed in seeds]), silent).tables["looks"]
        assert all(row.logo_boxes is None for row in rows)


def test_bars_are_black_and_alike_on_both_sides(tmp_path: Path) -> None:
    letterboxed, dark_edge = painting(7), painting(7)
    letterboxed[:60] = letterboxed[-60:] = 0
    dark_edge[:, :60] = 0
    bars = [looks_of(coded(tmp_path / "clip.mp4", [picture] * 4)).bars for picture in (letterboxed, dark_edge)]
    assert bars == [Bars(left=0, top=60, right=0, bottom=60), Bars(left=0, top=0, right=0, bottom=0)]


def stage_folder(root: Path, scenes: int = 2) -> FilmFolder:
    return make_dataset(root, films=1, scenes=scenes).folders()[0]


def test_the_stage_measures_every_clip_in_order(tmp_path: Path) -> None:
    folder = stage_folder(tmp_path)
    assert perform(MeasureLooks(LooksSettings(text=True), threads=2), folder)
    rows = folder.read("looks", Looks)
    assert [row.clip_id for row in rows] == [clip.clip_id for clip in folder.read("clips", Clip)]
    assert all(row.text_lines is not None for row in rows)
    assert not perform(MeasureLooks(LooksSettings(text=True), threads=1), folder)


def test_an_unreadable_clip_fails_alone_until_too_many_do(tmp_path: Path) -> None:
    folder = stage_folder(tmp_path, scenes=5)
    clips = folder.read("clips", Clip)
    folder.clip_path(clips[3].clip_id).write_bytes(b"no video")
    stage = MeasureLooks(LooksSettings(text=False))
    perform(stage, folder)
    record = folder.stage_record("looks")
    assert record is not None
    assert [failure.record_id for failure in record.failures] == [clips[3].clip_id]
    assert len(folder.read("looks", Looks)) == len(clips) - 1
    folder.clip_path(clips[4].clip_id).write_bytes(b"")
    with pytest.raises(RecordError, match="2 of 10 failed"):
        stage.run(folder, silent)
