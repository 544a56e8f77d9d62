"""Films whose borders change: a crop for each stretch, to the frame, and clips without bars on both sides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.world.textures import Picture
from pipeline.core.config import ClipSettings, CropSettings
from pipeline.core.progress import silent
from pipeline.core.records import Crop
from pipeline.stages.cropping.film_crops import CropJob, find_crops
from pipeline.stages.cutting.film_cutter import CutResult, cut_film
from pipeline.stages.overlays.borders import Borders, bars_of
from pipeline.video.clip_files import read_clip
from tests.support.media.cut_films import check_files, check_tiling, folder_of, job_of
from tests.support.media.films import Paint, make_film

FPS, FRAMES, CHANGE = 12, 360, 173
"""Rate and length of the films, 30 seconds, and the frame at which the borders change, away from the keyframes."""
SCENES = (0, 60, 120, CHANGE, 240, 300)
KEYFRAMES = {"g": "24", "sc_threshold": "0", "preset": "ultrafast"}
OPEN, BARS = (0, 0, 320, 180), (0, 22, 320, 136)
SMALL = ClipSettings(width=160, height=90)


def film_with(path: Path, paint: Paint, scenes: tuple[int, ...] = SCENES) -> Path:
    return make_film(path, frames=FRAMES, fps=FPS, scenes=scenes, barcode=False, paint=paint, options=KEYFRAMES)


def letterbox(picture: Picture) -> None:
    picture[:22], picture[-22:] = 0, 0


def opening(number: int, picture: Picture) -> None:
    if number < CHANGE:
        letterbox(picture)


def crops_of(tmp_path: Path, path: Path) -> list[Crop]:
    return find_crops(CropJob(folder_of(tmp_path, path).film, CropSettings()), silent)


def rows(crops: list[Crop]) -> list[tuple[float, tuple[int, int, int, int]]]:
    return [(round(crop.start_seconds * FPS, 1), (crop.left, crop.top, crop.width, crop.height)) for crop in crops]


def cut_with_crops(tmp_path: Path, path: Path) -> tuple[list[Crop], CutResult, list[Borders]]:
    """Crops and clips of a film, and the bars that each clip shows."""
    folder = folder_of(tmp_path, path)
    crops = find_crops(CropJob(folder.film, CropSettings()), silent)
    folder.write("crop", crops)
    result = cut_film(job_of(folder, SMALL), silent)
    check_tiling(result, folder.film)
    check_files(folder, result)
    clips = [read_clip(folder.clip_path(clip.clip_id)) for clip in result.clips]
    return crops, result, [bars_of(frames_THWC.max(axis=3), black_luma=24) for frames_THWC in clips]


@pytest.mark.parametrize("name", ["film.mp4", "film.mkv", "film.ts"])
def test_a_letterboxed_opening_has_its_own_crop_to_the_frame(tmp_path: Path, name: str) -> None:
    crops = crops_of(tmp_path, film_with(tmp_path / name, opening))
    assert rows(crops) == [(0, BARS), (CHANGE, OPEN)]
    assert [crop.warnings for crop in crops] == [(), ()]


def test_a_pillarboxed_part_begins_and_ends_to_the_frame(tmp_path: Path) -> None:
    def flashback(number: int, picture: Picture) -> None:
        if 120 <= number < 300:
            picture[:, :40], picture[:, -40:] = 0, 0

    crops = crops_of(tmp_path, film_with(tmp_path / "film.mp4", flashback))
    assert rows(crops) == [(0, OPEN), (120, (40, 0, 240, 180)), (300, OPEN)]


def test_clips_show_no_bars_and_all_of_the_picture(tmp_path: Path) -> None:
    crops, result, bars = cut_with_crops(tmp_path, film_with(tmp_path / "film.mp4", opening))
    assert len(crops) == 2
    assert [scene.start_frame for scene in result.scenes] == list(SCENES)
    assert "borders" not in {scene.opened_by for scene in result.scenes}  # the change is a cut
    assert set(bars) == {Borders(0, 0, 0, 0)}
    assert len(bars) == 12


def test_a_scene_across_the_change_is_split_there(tmp_path: Path) -> None:
    scenes = (0, 60, 120, 240, 300)
    _, result, bars = cut_with_crops(tmp_path, film_with(tmp_path / "film.mp4", opening, scenes))
    assert [(scene.start_frame, scene.opened_by) for scene in result.scenes if scene.opened_by != "cut"] == [
        (0, "start"),
        (CHANGE, "borders"),
    ]
    assert set(bars) == {Borders(0, 0, 0, 0)}
    before, after = ([clip for clip in result.clips if clip.scene == number] for number in (2, 3))
    assert before[-1].source_frames[-1] < CHANGE <= after[0].source_frames[0] <= CHANGE + 2


def test_a_fade_between_the_stretches_belongs_to_neither(tmp_path: Path) -> None:
    def fade(number: int, picture: Picture) -> None:
        opening(number, picture)
        picture[:] = picture * min(1.0, abs(number - CHANGE) / 12)

    crops, _, bars = cut_with_crops(tmp_path, film_with(tmp_path / "film.mp4", fade))
    [first, second] = crops
    assert rows([first])[0][1] == BARS
    assert rows([second])[0][1] == OPEN
    assert CHANGE - 12 < second.start_seconds * FPS <= CHANGE + 3
    assert set(bars) == {Borders(0, 0, 0, 0)}


def test_a_dark_opening_has_no_bars(tmp_path: Path) -> None:
    """Night: a lit window, black around it on every side, and one shot of a door, black on the left and right."""

    def night(number: int, picture: Picture) -> None:
        if number < 120:
            shade = np.clip((np.arange(180) - 15) / 60, 0, 1)
            picture[:] = picture * (shade * shade[::-1])[:, None, None]
        elif number < CHANGE:
            picture[:, :80], picture[:, -80:] = 2, 2

    crops = crops_of(tmp_path, film_with(tmp_path / "film.mp4", night, (0, 60, 120, CHANGE, 240)))
    assert rows(crops) == [(0, OPEN)]
