"""Clips of telecined, interlaced and progressive films, with fields undone and kept."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from examples.world.writer import write_film
from pipeline.core.config import ClipSettings, FilmSettings, SceneSettings
from pipeline.core.progress import silent
from pipeline.core.records import FieldStretch
from pipeline.core.stage import perform
from pipeline.core.store import FilmFolder
from pipeline.stages.cut import Cut
from pipeline.stages.cutting.film_cutter import cut_film
from tests.support.media.cut_films import barcodes, cut, folder_of, job_of
from tests.support.media.films import make_film, paint_pictures
from tests.support.media.woven_films import telecined

CLIPS = ClipSettings(width=360, height=240)
CUT = 56
PICTURES = 112


def telecined_film(path: Path, pictures: int = PICTURES, **coding: object) -> Path:
    video = telecined(paint_pictures(pictures, (320, 180), scenes=(0, CUT) if pictures > CUT else (0,)))
    return write_film(path, video, fps=Fraction(30_000, 1001), **coding)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    "coding",
    [
        {},
        pytest.param({"options": {"x264-params": "interlaced=1"}}, marks=pytest.mark.slow),
        pytest.param({"codec": "mpeg2video", "options": {"b": "4M", "flags": "+ildct+ilme"}}, marks=pytest.mark.slow),
    ],
    ids=["progressive", "flagged", "MPEG-2"],
)
def test_a_telecined_film_gives_the_clips_of_its_film(tmp_path: Path, coding: dict[str, object]) -> None:
    whole = make_film(tmp_path / "whole.mkv", frames=PICTURES, fps=Fraction(24_000, 1001), scenes=(0, CUT))
    _, expected = cut(tmp_path / "whole", whole, CLIPS)
    folder, result = cut(tmp_path / "woven", telecined_film(tmp_path / "film.mkv", **coding), CLIPS)
    assert [row.kind for row in result.fields] == ["telecine"]
    assert [scene.start_frame for scene in result.scenes] == [0, CUT]
    assert len(result.clips) == len(expected.clips) > 1
    for clip, other in zip(result.clips, expected.clips, strict=True):
        assert clip.source_frames == other.source_frames
        assert barcodes(folder, clip) == list(clip.source_frames)  # a combed barcode has another number, or none
        assert clip.start_seconds == pytest.approx(other.start_seconds, abs=0.002)


@pytest.mark.parametrize("hold", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_progressive_film_gives_the_same_bytes_as_with_its_fields_kept(tmp_path: Path, hold: int) -> None:
    pictures = list(paint_pictures(72, (320, 180)))
    film = write_film(tmp_path / "film.mp4", [pictures[n - n % hold] for n in range(72)], fps=24)
    folder = folder_of(tmp_path, film)
    results = [cut_film(replace(job_of(folder, CLIPS), fields=fields), silent) for fields in ("auto", "keep")]
    auto, kept = results
    assert auto.clips == kept.clips
    assert (auto.scenes, auto.damage) == (kept.scenes, kept.damage)
    assert auto.clips
    assert [row.kind for row in auto.fields] == ["progressive"]
    assert kept.fields == []


def stage(**film: object) -> Cut:
    return Cut(film=FilmSettings.model_validate(film), scenes=SceneSettings(), clips=CLIPS)


def test_the_stage_writes_the_stretches_of_a_film_that_is_not_progressive(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, telecined_film(tmp_path / "film.mkv", pictures=24))
    assert perform(stage(), folder)
    [row] = folder.read("fields", FieldStretch)
    assert (row.kind, row.start_seconds) == ("telecine", 0)
    assert row.end_seconds == pytest.approx(folder.film.duration_seconds, abs=0.04)
    assert "fields.parquet" in files(folder)
    assert folder.film.fields == ("telecine undone",)
    assert perform(stage(fields="keep"), folder)
    assert not folder.table_path("fields").exists()
    assert "fields.parquet" not in files(folder)
    assert folder.film.fields is None  # nobody looked


@pytest.mark.parametrize(("size", "fields"), [((96, 64), ("progressive",)), ((130, 1200), None), ((96, 24), None)])
def test_the_record_of_a_progressive_film_says_so_if_it_was_looked_at(
    tmp_path: Path, size: tuple[int, int], fields: tuple[str, ...] | None
) -> None:
    folder = folder_of(tmp_path, make_film(tmp_path / "film.mp4", frames=8, size=size, barcode=False))
    before = files_in(folder)
    assert perform(stage(), folder)
    assert folder.film.fields == fields
    tables = {"scenes.parquet", "damage.parquet", "hashes.parquet", "clips.parquet"}
    assert files_in(folder) - before == {*tables, "cut.json"}


def files_in(folder: FilmFolder) -> set[str]:
    return {path.name for path in folder.path.iterdir() if path.is_file()}


def files(folder: FilmFolder) -> dict[str, object]:
    record = folder.stage_record("cut")
    assert record is not None
    return dict(record.files)
