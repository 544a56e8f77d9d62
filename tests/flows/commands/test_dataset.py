"""Commands on a dataset: `status` as it is printed, and `remove`."""

from __future__ import annotations

import shutil
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner

from flows.cli import app
from pipeline.core.atomic import held
from pipeline.core.config import checked
from pipeline.core.film_settings import OneFilmSettings
from pipeline.core.measurements import Motion
from pipeline.core.records import Clip
from pipeline.core.store import Dataset
from pipeline.core.toml import as_toml
from pipeline.plan.publish import is_published
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.publish.shards import read_index
from pipeline.publish.verify import verify
from pipeline.reviews.decisions import append_decisions
from tests.support import records
from tests.support.datasets.built_dataset import SMALL, build_here, copy_of_built
from tests.support.datasets.made_dataset import make_dataset
from tests.support.media.films import make_film


def invoked(*arguments: object, code: int = 0, answer: str = "") -> str:
    """Run a command in this process and return what it said."""
    done = CliRunner().invoke(app, [*map(str, arguments)], input=answer)
    assert done.exit_code == code, done.output
    return done.output


def test_status_shows_an_id_on_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a terminal that is narrower than the table."""
    monkeypatch.setenv("COLUMNS", "60")
    dataset = make_dataset(tmp_path, films=2, names=("The Ocean Waves, Umi ga Kikoeru, remastered.mkv", "Kiki.mkv"))
    lines = invoked("status", dataset.root).splitlines()
    for folder, line in zip(dataset.folders(), lines[1:], strict=False):
        assert line.startswith(f"{folder.film_id}  ")


def test_status_counts_reviewed_clips_among_those_to_be_cut_anew(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    (folder,) = Dataset(data).folders()
    first, *others = folder.read("clips", Clip)
    append_decisions(data / "review.jsonl", [records.decision_about(first, folder.film.sha256, "MD", "jump")])
    other = tmp_path / "other.toml"
    other.write_text("[looks]\ntext = false\n[clips]\nwidth = 180\nheight = 120\nmargin_frames = 4\n")
    for options in ((), ("--config", other)):
        assert f"reviews 1 of {1 + len(others)} clips (MD 1)" in invoked("status", data, *options)


def test_a_calibration_is_stored_with_its_optical_flow_model(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    invoked("calibrate", dataset.root, "--method", "published")
    [measured] = {row.flow_model for folder in dataset.folders() for row in folder.read("motion", Motion)}
    assert dataset.record.calibration is not None
    assert (dataset.record.calibration.flow_model, dataset.record.edges_from) == (measured, "calibrated: published")


def test_a_removed_film_leaves_dataset_and_shards(tmp_path: Path) -> None:
    first, data = copy_of_built(tmp_path)
    second = make_film(tmp_path / "second.mp4", frames=120, size=(320, 200), scenes=[0, 60])
    dataset, config = Dataset(data), checked(SMALL, "test")
    build_here(BuildRequest(films=(first, second), out=data, config=config))
    kept, removed = dataset.folders()
    assert read_index(data).counts.film.keys() == {kept.film_id, removed.film_id}
    before = {path.name: path.stat().st_mtime_ns for path in (kept.path / "clips").iterdir()}

    assert str(removed.path) in invoked("remove", data, removed.film_id, code=1, answer="n\n")
    assert removed.film.name == "second.mp4"
    assert "publishes the rest" in invoked("remove", data, removed.film_id, "--yes")
    assert not removed.path.exists()
    assert second.exists()
    assert not is_published(dataset, config)
    assert verify(dataset)

    build_here(BuildRequest(films=(first,), out=data, config=config))
    assert is_published(dataset, config)
    assert verify(dataset) == []
    assert read_index(data).counts.film.keys() == {kept.film_id}
    assert {path.name: path.stat().st_mtime_ns for path in (kept.path / "clips").iterdir()} == before
    assert "every stage of every film is done" in invoked("status", data)
    for page in ("README.md", "report.html"):
        assert "second.mp4" not in (data / page).read_text(encoding="utf-8")


def test_a_film_whose_folder_was_deleted_by_hand_can_be_removed(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    (folder,) = Dataset(data).folders()
    shutil.rmtree(folder.path)
    assert "`animegamer remove` it" in invoked("status", data, "--explain")
    assert "no film is left" in invoked("remove", data, folder.film_id, answer="y\n")
    assert Dataset(data).folders() == []
    assert "the dataset has no films" in invoked("remove", data, folder.film_id, code=1)


def test_status_knows_what_another_configuration_leaves_out_of_a_film(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    film = (Dataset(data).folders()[0].path / "film.json").read_bytes()
    config = tmp_path / "skip.toml"
    skip = OneFilmSettings(match="film.mp4", skip=("0:00-0:03",))
    config.write_text(as_toml(checked(SMALL, "test").model_copy(update={"films": (skip,)})), encoding="utf-8")
    said = invoked("status", data, "--explain", "--config", config)
    assert "screened: stale, changed: left_out" in said
    assert (Dataset(data).folders()[0].path / "film.json").read_bytes() == film


def test_a_film_is_removed_from_a_dataset_at_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "work"))
    _, data = copy_of_built(tmp_path)
    workspace = Workspace(f"memory://{tmp_path.name}/data")
    (film_id,) = (folder.film_id for folder in Dataset(data).folders())
    shutil.copytree(data, workspace.dataset.root, dirs_exist_ok=True)
    workspace.send()
    store = fsspec.filesystem("memory")
    assert any(film_id in name and "clips/" in name for name in store.find(f"/{tmp_path.name}"))
    invoked("remove", workspace.name, film_id, "--yes")
    assert not [name for name in store.find(f"/{tmp_path.name}") if f"films/{film_id}" in name]
    workspace.fetch()
    assert workspace.dataset.folders() == []


def test_neither_unknown_films_nor_a_video_in_the_folder_are_deleted(tmp_path: Path) -> None:
    film, data = copy_of_built(tmp_path)
    (folder,) = Dataset(data).folders()
    assert f"the films are {folder.film_id}" in invoked("remove", data, folder.film_id, "typo", "--yes", code=1)
    inside = film.rename(folder.path / film.name)
    build_here(BuildRequest(films=(inside,), out=data, config=checked(SMALL, "test")))
    assert "move it to another place first" in invoked("remove", data, folder.film_id, "--yes", code=1)
    (folder.path / "film.json").write_text("damaged")
    assert "move it to another place first" in invoked("remove", data, folder.film_id, "--yes", code=1)
    assert inside.exists()
    elsewhere = folder.path.rename(tmp_path / "elsewhere")
    folder.path.symlink_to(elsewhere)
    assert f"is a link to {elsewhere}" in invoked("remove", data, folder.film_id, "--yes", code=1)
    assert inside.exists()


def test_nothing_is_deleted_while_one_of_the_films_is_in_use(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=2, names=("a.mkv", "b.mkv"))
    first, second = dataset.folders()
    with held(second.path, "another build"):
        assert "another build" in invoked("remove", dataset.root, first.film_id, second.film_id, "--yes", code=1)
    assert first.path.exists()
    assert len(dataset.folders()) == 2
