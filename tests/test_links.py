"""Links in a dataset from a stranger: no command writes or deletes a file of the user's through them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.game.folder import game_lock
from pipeline.core.atomic import append_lines
from pipeline.core.errors import DiskError
from pipeline.core.store import Dataset, StoreError
from tests.support.datasets.built_dataset import copy_of_built

KEYS = "my keys\n" * 50


def said_by(*arguments: object) -> str:
    """Run a command in this process, whatever its exit code."""
    return CliRunner().invoke(app, [*map(str, arguments)]).output


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file of the user's, outside the dataset."""
    path = tmp_path / "keys"
    path.write_text(KEYS)
    return path


def linked(place: Path, target: Path, *, hard: bool) -> None:
    """Put a link in the place of a file."""
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.hardlink_to(target) if hard else place.symlink_to(target)


@pytest.mark.parametrize("hard", [False, True])
def test_the_file_behind_a_linked_lock_is_not_touched(tmp_path: Path, keys: Path, hard: bool) -> None:
    film, data = copy_of_built(tmp_path)
    (folder,) = Dataset(data).folders()
    exported, build = tmp_path / "exported", ("build", film, "--out", data)
    export = ("export", data, "--for", "folder", "--out", exported)
    linked(data / ".lock", keys, hard=hard)
    names = ("status", "report", "verify", "clips", "calibrate", "vocabulary", "captions")
    for command in (*((name, data) for name in names), (*build, "--plan")):
        said_by(*command)
        assert keys.read_text() == KEYS, command
    for command in (build, ("remove", data, "typo"), export):
        assert f"{data / '.lock'}: " in said_by(*command).replace("\n", "")
        assert keys.read_text() == KEYS, command
    (data / ".lock").unlink()
    linked(folder.path / ".lock", keys, hard=hard)
    assert "delete the link" in (told := said_by(*build)) or "delete this one" in told
    linked(exported / ".lock", keys, hard=hard)
    said_by(*export)
    linked(tmp_path / "game" / ".lock", keys, hard=hard)
    with pytest.raises(DiskError, match=r"\.lock"), game_lock(tmp_path / "game"):
        pass
    assert keys.read_text() == KEYS


@pytest.mark.parametrize("hard", [False, True])
def test_no_line_is_appended_through_a_link(tmp_path: Path, keys: Path, hard: bool) -> None:
    linked(tmp_path / "data" / "review.jsonl", keys, hard=hard)
    with pytest.raises(DiskError, match=r"review\.jsonl"):
        append_lines(tmp_path / "data" / "review.jsonl", b"a decision\n")
    assert keys.read_text() == KEYS


@pytest.mark.parametrize("name", ["films", "films/{}", "films/{}/clips", "films/{}/.cache", "shards", ".cache"])
def test_a_linked_folder_is_refused_by_all_that_write(tmp_path: Path, name: str) -> None:
    film, data = copy_of_built(tmp_path)
    (folder,) = Dataset(data).folders()
    place, videos = data / name.format(folder.film_id), tmp_path / "videos"
    place.rename(videos) if place.exists() else videos.mkdir()
    for mine in ("holiday.mp4", "index.json", f"{folder.film_id}-000000000.mp4"):
        (videos / mine).write_text("mine")
    place.symlink_to(videos)
    before = {path: path.stat().st_mtime_ns for path in videos.rglob("*")}
    for command in (("build", film, "--out", data), ("status", data), ("report", data), ("verify", data)):
        assert f"{place}: is a link to {videos}" in said_by(*command).replace("\n", "")
    with pytest.raises(StoreError, match="delete the link"):
        Dataset(data).folders()
    assert {path: path.stat().st_mtime_ns for path in videos.rglob("*")} == before


def test_the_folders_of_shards_are_no_links_and_a_tar_of_the_user_stays(tmp_path: Path) -> None:
    film, data = copy_of_built(tmp_path)
    mine = data / "shards" / "train" / ".mine.tar"
    mine.write_text("mine")
    config = tmp_path / "config.toml"
    config.write_text("[looks]\ntext = false\n[clips]\nwidth = 180\nheight = 120\n[shards]\nsamples = 1\n")
    said_by("build", film, "--out", data, "--config", config)
    assert mine.read_text() == "mine"
    (tmp_path / "videos").mkdir()
    (data / "shards" / "train").rename(data / "shards" / "before")
    (data / "shards" / "train").symlink_to(tmp_path / "videos")
    assert "is a link to" in said_by("build", film, "--out", data).replace("\n", "")
    assert list((tmp_path / "videos").iterdir()) == []


def test_an_export_with_a_linked_folder_is_refused(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    out, videos = tmp_path / "export", tmp_path / "videos"
    export = ("export", data, "--for", "folder", "--captions", "instruction", "--out", out)
    said_by(*export)
    videos.mkdir()
    (videos / "wedding.mp4").write_text("mine")
    (out / "pictures").symlink_to(videos)
    note = json.loads((out / ".export.json").read_text())
    (out / ".export.json").write_text(json.dumps({**note, "files": [*note["files"], "pictures/wedding.mp4"]}))
    assert "is a link" in said_by(*export)
    assert (videos / "wedding.mp4").read_text() == "mine"
