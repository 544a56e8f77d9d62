"""Consistency of a data set: films measured above different backgrounds are neither joined nor published together."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.config import MotionSettings
from pipeline.core.errors import UserError
from pipeline.core.store import Dataset, FilmFolder, StageRecord
from pipeline.plan.consistency import refuse_to_join, refuse_to_publish
from pipeline.stages.motion import MeasureMotion
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from tests.support import records


def above(background_px: float) -> MeasureMotion:
    return MeasureMotion(MotionSettings(background_px=background_px), threads=1, failed_limit=0.2)


def measured(root: Path, name: str, stage: MeasureMotion) -> FilmFolder:
    """Folder of a film that this stage measured, with the record of the stage alone."""
    film = records.film(name)
    folder = Dataset(root).folder(film.film_id)
    folder.save_film(film)
    made = StageRecord(stage=stage.name, fingerprint="", ingredients=stage.ingredients(), files={})
    folder.save_stage_record(made)
    return folder


def test_films_measured_above_different_backgrounds_are_not_mixed(tmp_path: Path) -> None:
    first, second = measured(tmp_path, "a.mkv", above(0.2)), measured(tmp_path, "b.mkv", above(2.0))
    refuse_to_join([first], [above(0.2)])
    refuse_to_publish([first], PUBLISHED_EDGES)
    with pytest.raises(UserError, match=r"a\.mkv, .*background below 0\.2 px; of this build: .*background below 2 px"):
        refuse_to_join([first], [above(2.0)])
    with pytest.raises(UserError, match=r"optical flow of several kinds: .*0\.2 px \(a\.mkv\); .*2 px \(b\.mkv\)"):
        refuse_to_publish([first, second], PUBLISHED_EDGES)
