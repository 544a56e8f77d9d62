"""Consistency of a dataset: films measured or cut in different ways are neither joined nor published together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import ClipSettings, FilmSettings, MotionSettings, SceneSettings
from pipeline.core.errors import UserError
from pipeline.core.stage import Stage
from pipeline.core.store import Dataset, FilmFolder, StageRecord
from pipeline.plan.film_stages import refuse_to_join, refuse_to_publish
from pipeline.stages.cut import Cut
from pipeline.stages.motion import MeasureMotion
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from tests.support import records


def above(background_px: float) -> MeasureMotion:
    return MeasureMotion(MotionSettings(background_px=background_px), threads=1, failed_limit=0.2)


def cut(**clips: Any) -> Cut:
    return Cut(FilmSettings(), SceneSettings(), ClipSettings(**clips))


def made_by(root: Path, name: str, stage: Stage) -> FilmFolder:
    """Folder of a film with the record of this stage alone."""
    film = records.film(name)
    folder = Dataset(root).folder(film.film_id)
    folder.save_film(film)
    made = StageRecord(stage=stage.name, fingerprint="", ingredients=stage.ingredients(), files={})
    folder.save_stage_record(made)
    return folder


def test_films_measured_above_different_backgrounds_are_not_mixed(tmp_path: Path) -> None:
    first, second = made_by(tmp_path, "a.mkv", above(0.2)), made_by(tmp_path, "b.mkv", above(2.0))
    refuse_to_join([first], [above(0.2)])
    refuse_to_publish([first], PUBLISHED_EDGES)
    with pytest.raises(UserError, match=r"a\.mkv, .*background below 0\.2 px; of this build: .*background below 2 px"):
        refuse_to_join([first], [above(2.0)])
    with pytest.raises(UserError, match=r"optical flow of several kinds: .*0\.2 px \(a\.mkv\); .*2 px \(b\.mkv\)"):
        refuse_to_publish([first, second], PUBLISHED_EDGES)


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        ({"fit": "fit"}, "720x480 by fit"),
        ({"seconds": 4}, "one every 4 s by grid"),
        ({"placing": "overlap"}, "one every 2 s by overlap"),
    ],
)
def test_films_cut_in_different_ways_are_not_mixed(tmp_path: Path, other: dict[str, Any], shown: str) -> None:
    first, second = made_by(tmp_path, "a.mkv", cut()), made_by(tmp_path, "b.mkv", cut(**other))
    refuse_to_join([first], [cut(placing="grid")])  # a key that the records of earlier versions do not have
    refuse_to_publish([first], PUBLISHED_EDGES)
    with pytest.raises(UserError, match=rf"clips of a\.mkv, .*720x480 by cover; of this build: .*{shown}"):
        refuse_to_join([first], [cut(**other)])
    with pytest.raises(
        UserError, match=rf"clips of several kinds: .*720x480 by cover \(a\.mkv\); .*{shown}.* \(b\.mkv\)"
    ):
        refuse_to_publish([first, second], PUBLISHED_EDGES)
