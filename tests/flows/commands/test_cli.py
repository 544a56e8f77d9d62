"""`animegamer` command as a user runs it, most of it in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from pipeline.core.atomic import held
from pipeline.core.config import Config, load_config
from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from pipeline.publish.vocabulary import load_vocabulary
from tests.support.datasets.built_dataset import copy_of_built
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.media.films import make_film, truncate

SMALL = """
[looks]
text = false
[clips]
width = 180
height = 120
"""


def lacking(packages: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in an interpreter where importing these packages fails."""
    names = ", ".join(f"{name}=None" for name in packages.split())
    script = f"import sys; sys.modules.update({names}); from flows.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def invoked(*arguments: object, code: int = 0) -> str:
    """Run a command in this process, which spares the start of Python, and return what it said."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.output


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_config_prints_the_complete_default(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text(invoked("config"))
    assert load_config(path) == Config()


def test_what_cannot_be_built_is_named(tmp_path: Path) -> None:
    config, films, data = tmp_path / "bad.toml", [tmp_path / "empty.mp4", tmp_path / "text.mp4"], tmp_path / "data"
    config.write_text("[motion]\nmodle = 'dis'")
    assert "motion.modle" in invoked("build", "film.mp4", "--out", data, "--config", config, code=1)
    films[0].write_bytes(b"")
    films[1].write_text("no film")
    said = invoked("build", *films, "-o", data, code=1)
    assert all(path.name in said for path in films)
    with held(data, "animegamer build"):
        assert f"held by `animegamer build`, process {os.getpid()} on " in invoked("build", *films, "-o", data, code=1)


def test_a_plan_says_what_the_build_would_take_and_builds_nothing(tmp_path: Path, settings: Path) -> None:
    film = make_film(tmp_path / "film.mp4", frames=24)
    data = tmp_path / "data"
    said = invoked("build", film, tmp_path / "none.mp4", "--out", data, "--config", settings, "--plan")
    for expected in ("films  1, 1 with work left", "clips  about", "cores", "none.mp4: cannot be read"):
        assert expected in said
    assert not data.exists()


def test_a_plan_writes_nothing_into_a_dataset(tmp_path: Path, settings: Path) -> None:
    film, data = copy_of_built(tmp_path)
    dataset = Dataset(data)
    dataset.save(dataset.record.model_copy(update={"edges": (0.5, 1, 2, 3), "edges_from": "calibrated: quantiles"}))
    before = {path: path.lstat().st_mtime_ns for path in data.rglob("*")}
    make_film(film, frames=24)  # it would replace the film that was there
    settings.write_text(f"{SMALL}frames = 8\nseconds = 1.0\n[motion]\nedges = [1, 2, 3, 4]\n")
    said = invoked("build", film, "--out", data, "--config", settings, "--plan")
    assert "which replaces" in said
    assert "1 with work left" in said
    assert {path: path.lstat().st_mtime_ns for path in data.rglob("*")} == before


def test_a_vocabulary_is_suggested_once(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    folder = dataset.folders()[0]
    doing = ("shout", "shouts", "shout")
    rows = [row.model_copy(update={"MD": doing[n % 3]}) for n, row in enumerate(folder.read("captions", Caption))]
    folder.write("captions", rows)
    assert "1 values of MD, 0 values of EV" in invoked("vocabulary", dataset.root)
    path = dataset.root / "vocabulary.toml"
    assert load_vocabulary(dataset.root).published["MD"] == {"shouts": "shout"}
    path.write_text("# mine")
    assert "already exists: edit it" in invoked("vocabulary", dataset.root, code=1)
    assert path.read_text() == "# mine"


PREFECT = """
from flows.commands.build import set_prefect_defaults
set_prefect_defaults()
set_prefect_defaults()
import os
from prefect.settings import get_current_settings
settings = get_current_settings()
print(settings.server.analytics_enabled, os.environ["DO_NOT_TRACK"], settings.flows.heartbeat_frequency)
from prefect._internal.concurrency.services import QueueService
class Lost(QueueService):
    async def _handle(self, item):
        raise ConnectionError("the server is gone")
for _ in range(3):
    Lost.instance().send("event " * 300)
Lost.drain_all(timeout=20)
"""


@pytest.mark.slow
def test_prefect_has_no_telemetry_frequent_heartbeats_and_one_short_line_for_events_that_are_lost(
    tmp_path: Path,
) -> None:
    """A deployed server marks every build without heartbeats as crashed, even one started in a terminal."""
    from flows.deployments import DEAD_SECONDS

    environment = {"PREFECT_SERVER_ANALYTICS_ENABLED": "true", "DO_NOT_TRACK": "0", "PREFECT_HOME": str(tmp_path)}
    command, inherited = [sys.executable, "-c", PREFECT], os.environ
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**inherited, **environment})
    analytics, do_not_track, heartbeat_seconds = done.stdout.split()
    assert (analytics, do_not_track) == ("False", "1")
    assert 3 * int(heartbeat_seconds) <= DEAD_SECONDS
    (line,) = (line for line in done.stderr.splitlines() if "Still processing" not in line)
    assert line.endswith("the Prefect server took no event: is it still there? This is said once")
    assert len(line) < 200


@pytest.mark.slow
def test_hostile_names_and_bad_films_beside_good_ones(tmp_path: Path, settings: Path) -> None:
    """Good films are published, each bad one is named, no file is written outside; torch and ptlflow are not there."""
    films = tmp_path / "films"
    (films / "second").mkdir(parents=True)
    good = [
        make_film(films / "with space.and.dots.mp4", frames=60),
        make_film(films / "new\nline.mp4", frames=62),
        make_film(films / "ポニョ.mp4", frames=64),
        make_film(films / "-o.mp4", frames=66),
        make_film(films / "second" / "ポニョ.mp4", frames=68),  # two films of one name
        truncate(make_film(films / "cut-short.mkv", frames=120), 0.7),
        make_film(films / "one-frame.mp4", frames=1),
        make_film(films / "tiny.mp4", frames=60, size=(16, 16), barcode=False),
        make_film(films / "really-mp4.avi", frames=60),
    ]
    not_unicode = Path(os.fsdecode(os.fsencode(films) + b"/b\xe9b\x1b[31m.mp4"))
    not_unicode.write_bytes(good[0].read_bytes()[:-1])
    (films / "zero.mp4").write_bytes(b"")
    (films / "text.mp4").write_text("#EXTM3U\nfile:///etc/passwd\n")
    (films / "folder.mp4").mkdir()
    bad = [films / "zero.mp4", films / "text.mp4", films / "folder.mp4", films / "missing.mp4"]
    outside = set(tmp_path.iterdir())
    twice = films / "second" / ".." / "with space.and.dots.mp4"
    options = ("--out", tmp_path / "data", "--config", settings)
    done = lacking("torch ptlflow decord", "build", *good, *bad, twice, not_unicode, *options)
    assert done.returncode == 2, done.stderr
    assert "not valid UTF-8" in done.stderr
    assert "\x1b[31m" not in done.stderr
    for path in bad:
        assert path.name in done.stderr
    assert "used once" in done.stderr
    folders = {path.name for path in (tmp_path / "data" / "films").iterdir()}
    assert len(folders) == len(good), folders
    assert all(name.replace("-", "").isalnum() and name.isascii() for name in folders)
    assert set(tmp_path.iterdir()) - outside == {tmp_path / "data"}
    assert "no fault" in invoked("verify", tmp_path / "data")
    again = lacking("prefect", "build", *good, *options)
    assert (again.returncode, "nothing to do" in again.stderr) == (0, True), "known without starting Prefect"


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("stop", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_an_interrupted_build_stops_cleanly_and_the_next_run_finishes(
    tmp_path: Path, settings: Path, stop: signal.Signals
) -> None:
    film = make_film(tmp_path / "long.mp4", frames=1600, size=(480, 270), options={"preset": "ultrafast"})
    command = [sys.executable, "-m", "flows.cli", "build", str(film), "--out", str(tmp_path / "data")]
    command += ["--config", str(settings)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    clips = tmp_path / "data" / "films"
    while not list(clips.glob("*/clips/*.mp4")):
        assert process.poll() is None, "the build ended before it could be interrupted"
        time.sleep(0.05)
    os.killpg(process.pid, stop)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "resumes from here" in errors
    assert not list(clips.glob("*/scenes.parquet"))
    invoked("build", film, "--out", tmp_path / "data", "--config", settings)
    assert "no fault" in invoked("verify", tmp_path / "data")
    leftovers = {path.name for path in clips.rglob(".*") if path.is_file()}
    assert leftovers == {".lock"}
