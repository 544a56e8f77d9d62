"""Hostile tars, names and texts, which must not write files outside or leak a key.

The rules, and the other tests of each; calls that the code must not contain are in `tests/test_safe_code.py`:

* No name of a film, character or member of a tar, no title and no caption determines the path of a written file. Names
  alone are in `tests/pipeline/core/test_records.py`, `test_store.py` and `test_cast.py`; members of tars read by
  `verify` in `tests/pipeline/publish/test_verify.py`; hostile text on pages in `tests/pipeline/pages/`.
* Servers listen on this machine only.
* The key of a caption server is in no file and no message. Errors are in `tests/pipeline/captions/test_chat_client.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from pipeline.captions.cast import load_cast
from pipeline.core.config import ShardSettings
from pipeline.core.store import Dataset
from pipeline.publish.shards import write_shards
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import ROOT, Commands, members_of, numbered_film, write_config
from tests.support.datasets.hostile_tars import MEMBERS, with_member
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.media.painted_clips import captions_of, make_cast, make_screened_film, stage_for
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer

Answers = tuple[str, dict[str, str | list[str]]]
"""Result of each reader for each kind of member: clips or faults, or the error raised."""


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file and folder below a folder."""
    found = {}
    for path in root.rglob("*"):
        status = path.lstat()
        found[str(path.relative_to(root))] = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
    return found


# --- tars


READER = """
import json, resource, sys
from pathlib import Path
from pipeline.core.store import Dataset
if sys.argv[1] == "verify":
    from pipeline.publish.verify import verify
    def read(root):
        return [str(fault) for fault in verify(Dataset(root), threads=1) if ".tar" in fault.where]
else:
    from training.data.turns import read_turns
    from training.data.shards import open_shards
    from pipeline.core.errors import UserError
    def read(root):
        try:
            return [turn.clip_id for split in ("train", "val") for turn in read_turns(open_shards(root, split))]
        except UserError as error:
            return f"UserError: {error}"
resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))
for root in sys.argv[2:]:
    try:
        print(json.dumps(read(Path(root))), flush=True)
    except BaseException as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("published")
    write_shards(make_dataset(root, films=1, captioner=MODEL), ShardSettings(samples=3))
    return root


@pytest.fixture(scope="module", params=["verify", "training"])
def answers(request: pytest.FixtureRequest, published: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Run a reader on each kind, in a process limited to 4 GiB, and check that it changes no file."""
    place = tmp_path_factory.mktemp("tars")
    roots = [with_member(published, place / str(number), kind) for number, kind in enumerate(MEMBERS)]
    before = snapshot(place)
    command = [sys.executable, "-c", READER, request.param, *map(str, roots)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert snapshot(place) == before
    assert not Path("/tmp/pwned.mp4").exists()
    return request.param, dict(zip(MEMBERS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_hostile_member_of_a_tar_is_refused_or_ignored(published: Path, answers: Answers, kind: str) -> None:
    """Memory is not allocated by the claims of a tar, and no hostile member is returned."""
    reader, found = answers
    answer = found[kind]
    if reader == "verify":
        assert isinstance(answer, list), answer
        assert answer, "verify says nothing of it"
    elif isinstance(answer, str):
        assert answer.startswith("UserError")
    else:
        clips = {path.stem for path in (published / "films").rglob("clips/*.mp4")}
        assert set(answer) <= clips


# --- one hostile build

KEY = "sk-key-for-the-tests-0123456789"
NAMES = (
    "a;rm -rf b.mp4",
    "$(touch pwned).mp4",
    "`touch pwned`\n|touch pwned.mp4",
    "-o pwned.mp4",
    "..\\..\\pwned.mp4",
    "C:\\pwned.mp4",
    "﷽ ../ ポニョ\u202e4pm.mp4".replace("/", "\u2215"),
)
WORDS = "../../pwned $(touch pwned) {{7*7}} <script>pwned()</script>"


@dataclass(frozen=True)
class Built:
    """Files left by the build below, and observations during its run."""

    place: Path
    out: Path
    films: list[Path]
    said: str
    before: dict[str, tuple[int, int]]
    listening: set[str]
    requests: list[Request]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Run one real build with all hostile input at once: names, texts, a server that repeats the key in its errors."""
    place = tmp_path_factory.mktemp("hostile")
    for name in ("films/inner", "home", "tmp", "work"):
        (place / name).mkdir(parents=True)
    films = [numbered_film(place / "films" / name, number) for number, name in enumerate(NAMES[:3])]
    films += [_short(place / "films" / name, number) for number, name in enumerate(NAMES[3:])]
    films[1] = place / "films" / "inner" / ".." / films[1].name  # a path to the parent folder
    make_cast(place / "cast", "Ponyo", "`touch pwned` & ' %n ..")
    (place / "cast" / "Ponyo" / "$(touch pwned).png").write_bytes((place / "cast" / "Ponyo" / "a.png").read_bytes())

    def hostile(request: Request) -> Answer:
        first = sum(one.number == request.number and one.kind == request.kind for one in server.requests) == 1
        if first and request.number % 3 == 0:
            return Answer(status=500, raw=f"no room for {KEY} {WORDS}".encode())
        if request.kind == "what" and request.number == 1:
            return Answer(status=400, raw=f"I do not like {KEY} {WORDS}".encode())
        good = good_answer(request).text
        return Answer(good.replace("<EV>room", f"<EV>{WORDS}") if request.number == 2 else good)

    with CaptionServer(hostile) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", "failed_limit": 1}
        card = {"title": f"../../pwned\n# {WORDS}", "notes": WORDS, "contact": "$(touch pwned)"}
        config = write_config(place / "$(touch pwned).toml", captions=captions, card=card)
        folders = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), "XDG_CACHE_HOME": str(place / "home")}
        commands = Commands(place / "prefect", cwd=place / "work", ANIMEGAMER_API_KEY=KEY, **folders)
        before = snapshot(place)
        arguments = ["--out", place / "out", "--config", config, "--cast", place / "cast", "--", *films]
        build = commands.start(*arguments)
        listening: set[str] = set()
        while (code := build.wait(0.2)) is None:
            listening |= set(_listening(build.pid))
    said = build.log.read_text()
    assert code == 0, said
    return Built(place, place / "out", films, said, before, listening, server.requests)


def _short(path: Path, number: int) -> Path:
    """Make a film too short for a clip."""
    from tests.support.media.films import make_film

    return make_film(path, frames=30 + number)


def _listening(group: int) -> Iterator[str]:
    for process in members_of(group):
        with suppress(psutil.Error):
            for connection in process.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    yield connection.laddr.ip


@pytest.mark.slow
def test_a_hostile_build_succeeds(built: Built) -> None:
    assert verify(Dataset(built.out)) == []
    assert [film.film.name for film in Dataset(built.out).folders()] == [film.name for film in built.films]
    assert {request.number for request in built.requests} == {0, 1, 2, 3, 4, 5}
    assert "Traceback" not in built.said


@pytest.mark.slow
def test_nothing_is_written_outside_the_dataset(built: Built) -> None:
    """Home, temporary folder, working directory, films and cast are unchanged; only Prefect's home is new."""
    inside = {"out", "prefect", "commands.log"}
    after = {name: facts for name, facts in snapshot(built.place).items() if name.split("/")[0] not in inside}
    assert after == built.before
    assert not [path for path in built.place.rglob("*") if path.name == "pwned"]


@pytest.mark.slow
def test_no_name_within_the_dataset_is_chosen_by_the_input(built: Built) -> None:
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    odd = [path for path in built.out.rglob("*") if set(path.name) - allowed or path.name.startswith("-")]
    assert odd == []
    assert not [path for path in built.out.rglob("*") if path.is_symlink()]


@pytest.mark.slow
def test_the_key_is_in_no_file_and_no_message_of_a_build(built: Built) -> None:
    """The server knows the key and repeats it in its errors."""
    assert {request.headers.get("authorization") for request in built.requests} == {f"Bearer {KEY}"}
    assert KEY not in built.said
    files = [path for path in built.place.rglob("*") if path.is_file()]
    assert built.out / "dataset.json" in files
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    tables = [path for path in files if path.suffix == ".parquet"]  # compressed
    faults = "".join(str(pq.read_table(path).to_pylist()) for path in tables)
    assert "I do not like ***" in faults, "otherwise the test would prove less"
    assert KEY not in faults


@pytest.mark.slow
def test_a_build_listens_on_no_port(built: Built) -> None:
    assert built.listening == set()


def test_a_server_that_puts_the_key_into_a_caption_does_not_publish_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANIMEGAMER_API_KEY", KEY)
    folder = make_screened_film(tmp_path, 1)

    def repeats(request: Request) -> Answer:
        return Answer(good_answer(request).text.replace("room", f"room of {KEY}"))

    with CaptionServer(repeats) as server:
        captions = captions_of(stage_for(server.address, load_cast(None)), folder)
    assert KEY not in str(captions)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
