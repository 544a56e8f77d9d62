"""Builds under faults, end to end: a full disk, a caption server that fails, a decoder that dies.

Each names the file or film and the reason, ends with exit code 1 or 2 and leaves earlier results complete. Once the
fault is gone, the same command ends with the bytes of an undisturbed build.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.publish.shards import read_index
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import (
    ForkedBuild,
    ForkedBuilds,
    contents,
    differences,
    forked_builds,
    leftovers,
    numbered_films,
    write_config,
)
from tests.support.media.films import make_film
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedBuilds]:
    with forked_builds(tmp_path_factory.mktemp("forks")) as forks:
        yield forks


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return numbered_films(tmp_path_factory.mktemp("films"), 2)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("config") / "quick.toml")


@pytest.fixture(scope="module")
def reference(
    builds: ForkedBuilds, films: list[Path], config: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """Result of an undisturbed build."""
    root = tmp_path_factory.mktemp("reference") / "data"
    code, said = builds.run(*films, "--out", root, "--config", config)
    assert code == 0, said
    return contents(root)


@contextmanager
def small_disk(folder: Path, kibibytes: int) -> Iterator[None]:
    """Disk of this size over the folder, in memory; where mounting is not allowed, the test is skipped."""
    folder.mkdir(parents=True, exist_ok=True)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def enlarge(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)


def expect_clear(said: str, root: Path, reason: str) -> None:
    """Check that the message has the reason and a file of the dataset, and no traceback."""
    assert "Traceback" not in said, said
    assert any(reason in line and str(root) in line for line in said.splitlines()), said


@pytest.mark.nightly
@pytest.mark.parametrize("kibibytes", [8, 100])  # full at the plan, and at the clips of the first film
def test_a_build_on_a_full_disk_succeeds_after_it_is_enlarged(
    builds: ForkedBuilds, films: list[Path], config: Path, reference: dict[str, bytes], tmp_path: Path, kibibytes: int
) -> None:
    with small_disk(tmp_path / "disk", kibibytes):
        root = tmp_path / "disk" / "data"
        code, said = builds.run(*films, "--out", root, "--config", config)
        assert code in (1, 2), said
        expect_clear(said, root, "No space left on device")
        enlarge(tmp_path / "disk")
        code, said = builds.run(*films, "--out", root, "--config", config)
        assert code == 0, said
        assert differences(contents(root), reference) == []
        assert leftovers(root) == []


@pytest.mark.nightly
def test_a_disk_that_fills_up_leaves_published_files_intact(
    builds: ForkedBuilds, films: list[Path], config: Path, reference: dict[str, bytes], tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 500):
        root = tmp_path / "disk" / "data"
        code, said = builds.run(films[0], "--out", root, "--config", config)
        assert code == 0, said
        published = {shard.name: (root / "shards" / shard.name).read_bytes() for shard in read_index(root).shards}
        code, said = builds.run(*films, "--out", root, "--config", config)
        assert code in (1, 2), said
        expect_clear(said, root, "No space left on device")
        assert {name: (root / "shards" / name).read_bytes() for name in published} == published
        assert [shard.name for shard in read_index(root).shards] == list(published)
        enlarge(tmp_path / "disk")
        code, said = builds.run(*films, "--out", root, "--config", config)
        assert code == 0, said
        assert differences(contents(root), reference) == []


@pytest.mark.parametrize("largest_file", [pytest.param(12_000, marks=pytest.mark.nightly), 50_000])  # clip, shard
def test_a_file_over_the_size_limit_is_named(
    builds: ForkedBuilds, films: list[Path], config: Path, reference: dict[str, bytes], tmp_path: Path,
    largest_file: int,
) -> None:  # fmt: skip
    """A limit as of a quota: it works where no disk can be mounted."""
    command = (*films, "--out", tmp_path / "data", "--config", config)
    code, said = builds.run(*command, largest_file=largest_file)
    assert code in (1, 2), said
    expect_clear(said, tmp_path / "data", "File too large")
    code, said = builds.run(*command)
    assert code == 0, said
    assert differences(contents(tmp_path / "data"), reference) == []
    assert leftovers(tmp_path / "data") == []


def captions_in_order(root: Path) -> list[Caption]:
    return [row for folder in Dataset(root).folders() for row in folder.read("captions", Caption)]


def test_a_recovered_server_is_asked_only_the_open_questions(
    builds: ForkedBuilds, films: list[Path], tmp_path: Path
) -> None:
    """The server first fails on two clips, then on every request, then works; the result is that of a working one."""
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")

    def chokes(request: Request) -> Answer:
        if (request.kind, request.number) in (("what", 3), ("who", 7)):
            return Answer(status=500, raw=b"CUDA out of memory")
        return good_answer(request)

    with CaptionServer(good_answer) as server:
        settings = {"captioner": "server", "endpoint": server.address, "model": "test-model", "concurrency": 8}
        settings |= {"timeout_seconds": 3, "attempts": 2, "failed_limit": 0.5}
        config = write_config(tmp_path / "config.toml", captions=settings)

        def build(root: Path) -> tuple[int, str]:
            server.requests.clear()
            return builds.run(*films, "--out", root, "--config", config, "--cast", tmp_path / "cast")

        code, said = build(tmp_path / "reference" / "data")
        assert code == 0, said
        root = tmp_path / "data"
        server.answer = chokes
        code, said = build(root)
        assert "Traceback" not in said
        assert [number for number, caption in enumerate(captions_in_order(root)) if caption.fault] == [3, 7]
        assert verify(Dataset(root)) == []

        server.answer = lambda _: Answer(status=401)
        code, said = build(root)
        assert code == 1, said
        assert "ANIMEGAMER_API_KEY" in said
        assert "Traceback" not in said
        assert [request.number for request in server.requests] == [3], "of all films, the first open question alone"

        server.answer = good_answer
        code, said = build(root)
        assert code == 0, said
        asked = sorted((request.kind, request.number) for request in server.requests)
        assert asked == [("what", 3), ("what", 7), ("who", 7)]
    assert differences(contents(root), contents(tmp_path / "reference" / "data")) == []


@pytest.mark.nightly
def test_a_decoder_that_dies_fails_only_its_film(
    builds: ForkedBuilds, films: list[Path], config: Path, tmp_path: Path
) -> None:
    """The signal of the kernel, once memory runs out, comes while clips of that film appear."""
    eats = make_film(tmp_path / "eats.mp4", frames=1200, size=(360, 240), scenes=range(0, 1200, 100))
    root = tmp_path / "data"
    command = (eats, films[0], "--out", root, "--config", config)
    build = builds.start(*command)
    decoder_of(build, root, eats).kill()
    code = build.wait()
    said = build.log.read_text()
    assert code == 2, said
    assert "Traceback" not in said
    failed, whole = Dataset(root).folders()
    assert failed.failure is not None
    assert "the decoder died by signal SIGKILL" in failed.failure.reason
    assert any(eats.name in line and "SIGKILL" in line for line in said.splitlines()), said
    assert "out of memory" in said
    assert {shard.film_id for shard in read_index(root).shards} == {whole.film_id}
    untouched = {name: (whole.path / f"{name}.json").stat().st_mtime_ns for name in STAGE_NAMES}

    code, said = builds.run(*command)
    assert code == 0, said
    assert [folder.failure for folder in Dataset(root).folders()] == [None] * 2
    assert {name: (whole.path / f"{name}.json").stat().st_mtime_ns for name in STAGE_NAMES} == untouched
    assert {shard.film_id for shard in read_index(root).shards} == {failed.film_id, whole.film_id}
    assert leftovers(root) == []
    assert verify(Dataset(root)) == []


def decoder_of(build: ForkedBuild, root: Path, film: Path) -> psutil.Process:
    """Wait until a clip of this film is written and return the decoding process."""
    deadline = time.monotonic() + 120
    while not list((root / "films").glob(f"{film.stem}-*/clips/[!.]*.mp4")):
        assert build.wait(0) is None, f"the build ended first: {build.log.read_text()}"
        assert time.monotonic() < deadline, build.log.read_text()
        time.sleep(0.01)
    children = psutil.Process(build.pid).children()
    (server,) = (child for child in children if "forkserver" in " ".join(child.cmdline()))
    (decoder,) = server.children()
    return decoder
