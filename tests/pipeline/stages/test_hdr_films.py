"""HDR films: crop, scenes, clips and verdicts of their SDR twin."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.config import checked
from pipeline.core.progress import silent
from pipeline.core.records import Clip, Crop, Scene, Verdict
from pipeline.core.stage import Stage, perform
from pipeline.core.store import FilmFolder
from pipeline.plan.film_stages import planned_stages
from pipeline.plan.request import BuildRequest, Until
from pipeline.stages.cropping.film_crops import CropJob, find_crops
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from pipeline.video.clip_files import read_clip
from pipeline.video.containers import Picture
from tests.support.media.colour_films import write_coded
from tests.support.media.films import paint_pictures, planned

SCENES = (0, 56, 112, 168)
FRAMES = 224
CONFIG = checked({"clips": {"width": 192, "height": 128}, "looks": {"text": False}}, "test")


def twin_pictures() -> Iterator[Picture]:
    """Four letterboxed scenes: two that pan, one of them held on threes, one too dark and one blank."""
    panned = paint_pictures(FRAMES, (320, 240), SCENES, borders=(0, 24, 0, 24), barcode=False)
    for number, picture in enumerate(panned):
        shown = picture[24:-24]
        if SCENES[2] <= number < SCENES[3]:
            shown //= 24
        elif number >= SCENES[3]:
            shown[:] = (90, 140, 120)
        yield picture


def stages_of(folder: FilmFolder) -> tuple[Stage, ...]:
    """The stages before the captions."""
    request = BuildRequest(films=(), out=folder.path.parents[1], config=CONFIG, until=Until.captions)
    return planned_stages(request, PUBLISHED_EDGES)[:-1]


def screened(folder: FilmFolder) -> FilmFolder:
    """The folder after all stages before the captions."""
    for stage in stages_of(folder):
        perform(stage, folder)
    return folder


@pytest.fixture(scope="module")
def sdr(tmp_path_factory: pytest.TempPathFactory) -> FilmFolder:
    """The SDR twin after all stages before the captions; read-only."""
    root = tmp_path_factory.mktemp("sdr")
    return screened(planned(root, write_coded(root / "film.mp4", twin_pictures(), "709")))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("pq", marks=pytest.mark.nightly), "hlg"])
def test_an_hdr_film_is_judged_like_its_sdr_twin(tmp_path: Path, sdr: FilmFolder, name: str) -> None:
    hdr = screened(planned(tmp_path, write_coded(tmp_path / "film.mp4", twin_pictures(), name)))
    boxes = [
        [(crop.left, crop.top, crop.width, crop.height) for crop in made.read("crop", Crop)] for made in (sdr, hdr)
    ]
    scenes = [[(row.start_frame, row.end_frame) for row in made.read("scenes", Scene)] for made in (sdr, hdr)]
    verdicts = [[(row.keep, row.reasons, row.level) for row in made.read("screened", Verdict)] for made in (sdr, hdr)]
    assert boxes == [[(0, 24, 320, 192)]] * 2
    assert scenes == [list(pairwise((*SCENES, FRAMES)))] * 2
    assert verdicts[0] == verdicts[1]
    assert [keep for keep, _, _ in verdicts[0]] == [True, True, False, False]
    for one, other in zip(sdr.read("clips", Clip), hdr.read("clips", Clip), strict=True):
        pictures = [read_clip(made.clip_path(row.clip_id)).astype(int) for made, row in ((sdr, one), (hdr, other))]
        assert np.abs(pictures[0] - pictures[1]).mean() <= 3


@pytest.mark.parametrize("name", ["709", "pq", "hlg"])
def test_borders_that_are_not_quite_black(tmp_path: Path, name: str) -> None:
    """Gray of 18, black to `[crop] black_luma`, has the code 27 in PQ."""
    pictures = list(paint_pictures(2, (320, 240), borders=(0, 24, 0, 24), barcode=False))
    for picture in pictures:
        np.maximum(picture, 18, out=picture)
    film = planned(tmp_path, write_coded(tmp_path / "film.mp4", pictures, name)).film
    [crop] = find_crops(CropJob(film, CONFIG.crop), silent)
    assert (crop.left, crop.top, crop.width, crop.height) == (0, 24, 320, 192)
