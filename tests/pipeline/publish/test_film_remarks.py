"""Remarks on a film's clips: the reason for having none, and how much of the pictures is cut off."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import ClipSettings, FilmSettings, SceneSettings
from pipeline.core.stage import perform
from pipeline.publish.film_remarks import film_remarks
from pipeline.stages.cut import Cut
from tests.support.media.cut_films import folder_of
from tests.support.media.films import make_film

HELD = [Fraction(number, 24) + 40 * (number >= 30) for number in range(60)]
WHOLE = '; `fit = "fit"` in [clips] shows all of it'


def remarks(place: Path, make: Callable[[Path], Path], **clips: Any) -> list[str]:
    folder = folder_of(place, make(place / "film.mkv"))
    settings = ClipSettings(width=180, height=120, **clips)
    assert film_remarks(folder, settings) == [], "nothing is known before the cut"
    perform(Cut(FilmSettings(), SceneSettings(), settings, threads=1), folder)
    return film_remarks(folder, settings)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            partial(make_film, frames=90, scenes=(0, 30, 60)),
            "no clip: no scene is as long as a clip with its margins (2.17 s); the longest lasts 1.25 s",
        ),
        (
            partial(make_film, frames=60, times=HELD),
            "no clip: no scene has 2 s between its margins, transitions and frames held longer than 30 s; "
            "the longest lasts 42.5 s",
        ),
    ],
    ids=["short scenes", "a frame held"],
)
def test_a_film_without_a_clip_has_the_reason(tmp_path: Path, make: Callable[[Path], Path], reason: str) -> None:
    assert remarks(tmp_path, make) == [reason]


@pytest.mark.parametrize(
    ("film", "fit", "expected"),
    [
        ({"size": (180, 320)}, "cover", ["vertical film: clips show 38 % of its height" + WHOLE]),
        ({"size": (180, 320), "rotation": 90}, "cover", ["vertical film: clips show 38 % of its height" + WHOLE]),
        ({"size": (320, 120)}, "cover", ["clips show 56 % of its width" + WHOLE]),
        ({"size": (320, 180)}, "cover", []),
        ({"size": (180, 320)}, "fit", []),
    ],
    ids=["vertical", "vertical by its metadata", "wide", "16:9", "padded"],
)
def test_a_film_of_another_shape_has_the_share_that_clips_show(
    tmp_path: Path, film: dict[str, Any], fit: str, expected: list[str]
) -> None:
    make = partial(make_film, frames=56, **film)
    assert remarks(tmp_path, lambda path: make(path.with_suffix(".mp4")), fit=fit) == expected


def test_a_film_without_a_usable_frame_has_the_reason(tmp_path: Path) -> None:
    folder, settings = folder_of(tmp_path, make_film(tmp_path / "film.mkv", frames=60)), ClipSettings()
    perform(Cut(FilmSettings(), SceneSettings(), settings, threads=1), folder)
    for table in ("scenes", "clips"):
        folder.write(table, [])
    assert film_remarks(folder, settings)[0] == "no clip: no frame of the film could be used"
