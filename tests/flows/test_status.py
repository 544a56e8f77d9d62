"""Status of a dataset: done, stale, missing, failed and unknown stages, with their reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import UserError
from pipeline.core.records import RecordError
from pipeline.core.store import Dataset
from pipeline.plan.request import Until
from pipeline.plan.status import Cell, StageState, explanations, film_rows, published_line
from tests.support.builds.rebuilt_films import animegamer, redone, request_for, states
from tests.support.datasets.built_dataset import SMALL
from tests.support.media.films import corrupt, make_film

pytestmark = pytest.mark.slow


def test_status_names_the_changed_ingredient_and_dependent_stages(tmp_path: Path, film: Path) -> None:
    out = tmp_path / "data"
    redone(request_for(film, out=out).model_copy(update={"until": Until.cut}))
    assert [state.value for state in states(request_for(out=out), out).values()] == ["done", "done", *["missing"] * 5]
    redone(request_for(film, out=out))
    other = request_for(out=out, clips={"width": 180, "height": 120, "margin_frames": 4})
    (row,) = film_rows(Dataset(out), other)
    assert row.open_parts == 5
    said = explanations([row])
    assert said[0].endswith("cut: stale, changed: clips.margin_frames (2 to 4)")
    assert said[1].endswith("looks: stale, after cut")
    assert published_line(Dataset(out), other.config, [row]) == "missing"


def test_status_shows_why_a_film_failed(tmp_path: Path) -> None:
    noise = make_film(tmp_path / "noise.mp4", frames=120)
    corrupt(noise, 0.01, 0.9)
    done = animegamer("build", noise, "--out", tmp_path / "data", "--until", "motion")
    assert done.returncode == 1
    said = animegamer("status", tmp_path / "data", "--explain").stdout
    assert "cut: failed, not one frame of it can be decoded" in said
    assert "motion: missing, after cut" in said


def test_parts_that_need_missing_files_have_unknown_status(tmp_path: Path, built: tuple[Path, Path]) -> None:
    """Dataset copied without its cast folder, measured with weights that are missing here."""
    _, out = built
    gone = str(tmp_path / "gone")
    by_rules = request_for(out=out).model_copy(update={"cast": gone})
    assert set(states(by_rules, out).values()) == {StageState.done}, "rules do not use the cast"
    by_server = request_for(out=out, captions={"captioner": "server"}).model_copy(update={"cast": gone})
    (row,) = film_rows(Dataset(out), by_server)
    assert row.cells["captions"].state is StageState.unknown
    assert (row.open_parts, row.unknown_parts) == (0, 1)
    assert f"{gone}: no such folder" in explanations([row])[0]
    weights = request_for(out=out, motion={"model": "raft", "checkpoint": str(tmp_path / "raft.ckpt")})
    (row,) = film_rows(Dataset(out), weights)
    assert [name for name, cell in row.cells.items() if cell.state is StageState.unknown] == [
        "motion",
        "screened",
        "captions",
    ]
    assert "raft.ckpt" in row.cells["motion"].why
    with pytest.raises(UserError, match=r"raft\.ckpt"):
        film_rows(Dataset(out), weights, certain=["motion"])
    with pytest.raises(UserError, match="no such folder"):
        film_rows(Dataset(out), by_server, certain=["captions"])


def test_an_unknown_status_does_not_hide_known_faults(tmp_path: Path, built: tuple[Path, Path]) -> None:
    """Dataset measured with weights that are missing here: missing, damaged and failed parts are still shown."""
    _, out = built
    (folder,) = Dataset(out).folders()

    def cells(**clips: Any) -> dict[str, Cell]:
        weights = {"model": "raft", "checkpoint": str(tmp_path / "raft.ckpt")}
        sections = {"motion": weights, "clips": {**SMALL["clips"], **clips}}
        (row,) = film_rows(Dataset(out), request_for(out=out, **sections))
        return row.cells

    folder.save_failure(RecordError("film", "its process gives no sign of life"))
    assert cells()["captions"] == Cell(StageState.failed, "its process gives no sign of life")
    folder.clear_failure()
    assert cells(margin_frames=4)["motion"] == Cell(StageState.stale, "after cut")
    folder.forget_stage("captions")
    folder.save_failure(RecordError("film", "no caption"))
    assert cells()["captions"] == Cell(StageState.failed, "no caption")
    folder.clear_failure()
    folder.table_path("motion").unlink()
    assert cells()["motion"] == Cell(StageState.stale, "missing or damaged: motion.parquet (1 of 1 files)")
