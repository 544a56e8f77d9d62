"""The flows on real films: what a run makes, what it skips, and that a failure is never called a success."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from flows.request import BuildRequest, Until
from pipeline.account import account, totals
from pipeline.config import checked
from pipeline.records import Clip, Damage, Scene, Verdict
from pipeline.store import Dataset
from tests.films import corrupt, make_film

pytestmark = pytest.mark.usefixtures("prefect")

FAST = checked({"looks": {"text": False}, "clips": {"width": 180, "height": 120}}, "test")


def small_film(path: Path, frames: int = 144) -> Path:
    """Six seconds, two scenes."""
    return make_film(path, frames=frames, scenes=[0, 70])


def test_a_film_becomes_a_published_data_set(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    film = small_film(tmp_path / "Film One.mp4")
    request = BuildRequest(films=(film,), out=tmp_path / "data", config=FAST)
    state = build_dataset(request, return_state=True)
    assert state.is_completed(), state.message
    for name in ("dataset.json", "README.md", "report.html", "shards/index.json"):
        assert (tmp_path / "data" / name).is_file(), name
    (folder,) = Dataset(tmp_path / "data").folders()
    assert folder.film_id.startswith("film-one-")
    assert len(folder.read("clips", Clip)) == 2


def test_a_run_with_a_bad_film_ends_failed_and_publishes_the_good_one(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    good, bad = small_film(tmp_path / "good.mp4"), tmp_path / "bad.mp4"
    bad.write_bytes(b"")
    state = build_dataset(BuildRequest(films=(bad, good), out=tmp_path / "data", config=FAST), return_state=True)
    assert state.is_failed()
    assert "bad.mp4" in (state.message or "")
    assert (tmp_path / "data" / "shards" / "index.json").is_file()


def test_a_film_that_fails_in_a_stage_fails_the_run_and_stops_no_other(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    good, noise = small_film(tmp_path / "good.mp4"), small_film(tmp_path / "noise.mp4", frames=120)
    corrupt(noise, 0.01, 0.9)  # the container still promises frames, the decoder gets none
    state = build_dataset(BuildRequest(films=(noise, good), out=tmp_path / "data", config=FAST), return_state=True)
    assert state.is_failed()
    assert "noise.mp4" in (state.message or "")
    broken, whole = Dataset(tmp_path / "data").folders()
    assert broken.failure is not None
    assert whole.table_path("verdicts").exists()


def test_building_again_redoes_nothing_and_a_threshold_only_the_verdicts(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    film = small_film(tmp_path / "film.mp4")
    request = BuildRequest(films=(film,), out=tmp_path / "data", config=FAST)
    build_dataset(request)
    (folder,) = Dataset(tmp_path / "data").folders()
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*") if path.is_file()}
    build_dataset(request)
    assert {path: path.stat().st_mtime_ns for path in before} == before

    stricter = checked({**FAST.model_dump(), "selection": {"min_light": 255}}, "test")
    build_dataset(request.model_copy(update={"config": stricter}))
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed <= {"screened.parquet", "screened.json", "captions.parquet", "captions.json", "verdicts.parquet"}
    assert not any(verdict.keep for verdict in folder.read("verdicts", Verdict))


def test_stopping_early_and_going_on(tmp_path: Path) -> None:
    from flows.dataset import build_dataset

    request = BuildRequest(films=(small_film(tmp_path / "film.mp4"),), out=tmp_path / "data", config=FAST)
    build_dataset(request.model_copy(update={"until": Until.cut}))
    (folder,) = Dataset(tmp_path / "data").folders()
    assert folder.table_path("clips").exists()
    assert not folder.table_path("looks").exists()
    made = folder.table_path("clips").stat().st_mtime_ns
    build_dataset(request)
    assert folder.table_path("verdicts").exists()
    assert folder.table_path("clips").stat().st_mtime_ns == made


@pytest.mark.parametrize("end_seconds", [None, 5.0])
def test_every_second_of_a_film_is_accounted_for(tmp_path: Path, end_seconds: float | None) -> None:
    from flows.dataset import build_dataset

    film = make_film(tmp_path / "film.mp4", frames=240, fps=Fraction(24000, 1001), scenes=[0, 70, 90, 200])
    config = checked({**FAST.model_dump(), "film": {"end_seconds": end_seconds}}, "test")
    build_dataset(BuildRequest(films=(film,), out=tmp_path / "data", config=config))
    (folder,) = Dataset(tmp_path / "data").folders()
    spans = account(
        folder.film,
        folder.read("scenes", Scene),
        folder.read("damage", Damage),
        folder.read("clips", Clip),
        folder.read("verdicts", Verdict),
        end_seconds,
    )
    assert sum(totals(spans).values()) == pytest.approx(240 * 1001 / 24000, abs=1001 / 24000)
    assert any(span.fate == "kept" for span in spans)
