"""Inputs of a build: folders and patterns are searched for films, and other files are named and skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.store import Dataset
from pipeline.plan.identify import Inputs, identify
from tests.pipeline.plan.test_identify import small_film


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder of empty files: a season with subfolders and all that lies beside films."""
    folder = tmp_path / "films"
    for name in (
        *("Show 10.mkv", "Show 9.MKV", "show 1.mp4", "extras/Show 2/b.webm", "cover.jpg", "Show 9.srt", "README"),
        *(".hidden.mkv", ".trash/old.mkv", "data/dataset.json", "data/films/show-1/clips/show-1-000000000.mp4"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_a_folder_is_searched_in_the_order_people_count_in(films: Path) -> None:
    found = Inputs.of([str(films), "s3://bucket/film.mkv", "named.txt"])
    names = ("extras/Show 2/b.webm", "show 1.mp4", "Show 9.MKV", "Show 10.mkv")
    assert found.films == [*(f"{films}/{name}" for name in names), "s3://bucket/film.mkv", "named.txt"]
    assert found.notices == [f"{films}: skipped 2 files that are no videos: cover.jpg, README"]
    assert found.refused == []


def test_a_pattern_is_searched_unless_a_file_has_its_name(films: Path) -> None:
    (films / "[raw] 1.mkv").touch()
    found = Inputs.of([f"{films}/Show*", f"{films}/ext*", f"{films}/[raw] 1.mkv"])
    expected = ("Show 9.MKV", "Show 10.mkv", "extras/Show 2/b.webm", "[raw] 1.mkv")
    assert found.films == [f"{films}/{name}" for name in expected]
    assert found.notices == []  # Show 9.srt has the subtitles of Show 9.MKV
    every = Inputs.of([f"{films}/**"])  # matches folders and their files, and those of a dataset
    assert sorted(every.films) == sorted(f"{films}/{name}" for name in (*expected, "show 1.mp4"))
    (films / "Show 9.srt").rename(films / "Show 9b.srt")
    assert Inputs.of([f"{films}/Show*"]).notices == [f"{films}/Show*: skipped 1 file that is no video: Show 9b.srt"]


def test_what_holds_no_film_is_refused_by_name(films: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a\n.txt").touch()
    found = Inputs.of([f"{tmp_path}/empty", f"{tmp_path}/notes", f"{films}/*.avi", "x" * 5000])
    assert [(refused.record_id, refused.reason) for refused in found.refused] == [
        (f"{tmp_path}/empty", "no video file there"),
        (f"{tmp_path}/notes", "no video file there, only a\N{REPLACEMENT CHARACTER}.txt"),
        (f"{films}/*.avi", "no video file there"),
    ]
    assert found.films == ["x" * 5000]


def test_the_films_of_a_folder_are_identified_beside_those_named(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    for number in (10, 2):
        small_film(tmp_path / "films" / f"ep {number}.mkv", 6 + number)
    (tmp_path / "films" / "ep 3.mkv").write_text("no film")
    found = identify([str(tmp_path / "films"), str(small_film(tmp_path / "last.mkv", 7))], Dataset(tmp_path / "data"))
    assert [film.name for film in found.films] == ["ep 2.mkv", "ep 10.mkv", "last.mkv"]
    assert [refused.record_id for refused in found.refused] == [str(tmp_path / "films" / "ep 3.mkv")]


def test_our_own_clips_are_no_films(films: Path) -> None:
    (films / "export").mkdir()
    for name in (".export.json", "a.mp4"):
        (films / "export" / name).touch()
    for name in (str(films), f"{films}/**/*.mp4"):
        found = [str(Path(path).relative_to(films)) for path in Inputs.of([name]).films]
        assert found
        assert not [path for path in found if path.startswith(("export", "data"))]
