"""Command `clips`: lines, CSV, its end of the pipe closed, bad input, an address."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flows.cli import app
from pipeline.core.embed_settings import EmbedSettings
from pipeline.core.records import Caption, Clip
from pipeline.core.stage import perform
from pipeline.publish.clip_rows import clip_rows
from pipeline.publish.seen_clips import seen_clips
from pipeline.remote.mirror import Mirror
from pipeline.stages.embed import Embed
from tests.support.datasets.dialogue import line, write_dialogue
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.onnx_networks import picture_encoder
from tests.support.servers.object_store import ObjectStore


def clips(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["clips", *map(str, arguments)])
    assert done.exit_code == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("clips") / "data", captioner=MODEL).root


def test_lines(root: Path) -> None:
    done = clips(root, "--film", "海の話", "--level", "4-5", "--verdict", "kept", "--character", "hana")
    lines = done.stdout.splitlines()
    assert done.stderr == f"{len(lines)} of 20 clips\n"
    assert lines
    assert all("level 4  kept" in line or "level 5  kept" in line for line in lines)
    assert all("Hana" in line for line in lines)


def test_a_search_shows_the_line_that_it_found(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "data", captioner=MODEL).folders()[0]
    first = folder.read("clips", Clip)[0].start_seconds
    write_dialogue(folder, line(first + 0.5, first + 1, "A lovely apple.", "Ursula", "en"))
    [found] = clips(tmp_path / "data", "--search", "apple").stdout.splitlines()
    assert found.endswith("0.500-1.000 [en] Ursula: A lovely apple.")


def test_csv_has_every_value_of_every_clip(root: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(clips(root, "--csv").stdout)))
    dataset = make_dataset(root, captioner=MODEL)
    for row, known in zip(rows, clip_rows(dataset, seen_clips(dataset)), strict=True):
        assert row["clip_id"] == known.clip_id
        assert float(row["start_seconds"]) == known.start_seconds
        assert row["level"] == str(known.level)
        assert row["characters"] == "; ".join(known.characters or ())
        assert row["text"] == known.text


def test_control_characters_of_a_caption_reach_no_terminal(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    folder = dataset.folders()[0]
    captions = folder.read("captions", Caption)
    folder.write("captions", [row.model_copy(update={"EV": "sky\x1b[2J\nhere"}) for row in captions])
    for options in ([], ["--csv"]):
        said = clips(dataset.root, *options).stdout
        assert "sky" in said
        assert "\x1b" not in said
        assert len(said.splitlines()) == 20 + len(options)


def test_a_reader_that_stops_early_is_no_error(root: Path) -> None:
    command = f"{sys.executable} -m flows.cli clips '{root}' --csv | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("clip_id,")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--level", "high"], "write 4, or 4-5"),
        (["--tag", "forest"], "is not TAG=value"),
        (["--tag", "EV=forest"], "night sky"),
        (["--character", "Ponyo"], "Hana, Søren, ポン太"),
        (["--film", "ponyo"], "Kiki's Café (1989).mkv, 海の話.mp4"),
    ],
)
def test_bad_input_is_named_with_what_there_is(root: Path, options: list[str], said: str) -> None:
    assert said in clips(root, *options, code=1).stderr


def test_a_damaged_table(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data")
    dataset.folders()[0].table_path("verdicts").write_bytes(b"PAR1")
    assert "verdicts.parquet: cannot be read" in clips(dataset.root, code=1).stderr


@pytest.mark.slow
def test_of_an_address_only_the_tables_are_fetched(
    root: Path, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "work"))
    Mirror(object_store.address("data"), root).push()
    assert clips(object_store.address("data")).stdout == clips(root).stdout
    assert not list((tmp_path / "work").rglob("*.mp4"))


def test_clips_like_a_clip_come_best_first_among_those_that_meet_the_conditions(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data")
    network = picture_encoder(tmp_path / "model.onnx")
    for folder in dataset.folders():
        perform(Embed(EmbedSettings(pictures=str(network))), folder)
    clip_id = dataset.folders()[0].read("clips", Clip)[0].clip_id
    done = clips(dataset.root, "--like", clip_id, "--verdict", "kept", "--most", "4")
    likeness = [float(line.split()[0]) for line in done.stdout.splitlines()]
    assert len(likeness) == 4
    assert likeness == sorted(likeness, reverse=True)
    assert clip_id not in done.stdout
    assert [
        row["clip_id"]
        for row in csv.DictReader(
            io.StringIO(clips(dataset.root, "--like", clip_id, "--verdict", "kept", "--most", "4", "--csv").stdout)
        )
    ] == [line.split()[1] for line in done.stdout.splitlines()]
