"""Mirror: datasets pushed to an address and pulled from it, with an S3-compatible server that logs its requests."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.errors import DiskError, UserError
from pipeline.publish.shards import write_shards
from pipeline.remote.mirror import Mirror
from pipeline.remote.objects import RemoteError
from tests.support.datasets.made_dataset import make_dataset
from tests.support.datasets.mirrored_files import FILM, SMALL_SET, Files, files_in, pulled, pushed, write
from tests.support.servers.object_store import ObjectStore
from training.data.shards import open_shards, unpack
from training.data.sources import open_index


def dataset(run: str, clips: int) -> Files:
    """Published dataset of one film whose files all differ from run to run, with the records that list them."""
    made = {f"clips/{number}.mp4": f"{run} {number}".encode() for number in range(clips)}
    results = {stage: {f"{stage}.parquet": f"{run} {stage}".encode()} for stage in ("crop", "looks", "motion")}
    results["cut"] = made | {"clips.parquet": run.encode()}
    records = {
        f"{stage}.json": {"files": {name: marks(files[name]) for name in files}} for stage, files in results.items()
    }
    tars = {f"train/film-01234567-{number:06d}.tar": f"{run} {number}".encode() for number in range(clips // 2)}
    index = {"shards": [{"name": name} for name in tars]}
    return {
        f"{FILM}/film.json": run.encode(),
        **{f"{FILM}/{name}": content for files in results.values() for name, content in files.items()},
        **{f"{FILM}/{name}": json.dumps(record).encode() for name, record in records.items()},
        **{f"shards/{name}": content for name, content in tars.items()},
        "shards/index.json": json.dumps(index).encode(),
        "README.md": run.encode(),
        "dataset.json": json.dumps({"films": ["film-01234567"], "run": run}).encode(),
    }


def marks(content: bytes) -> dict[str, object]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def remake(root: Path, files: Mapping[str, bytes]) -> None:
    """Replace the folder by the result of another build; files that it did not make are removed."""
    for name in files_in(root).keys() - files.keys():
        (root / name).unlink()
    write(root, files)


# --- there and back --------------------------------------------------------------------------------------------------


def test_a_pushed_dataset_is_pulled_byte_for_byte_and_then_nothing_is_sent(store: ObjectStore, tmp_path: Path) -> None:
    files = dataset("first", clips=20)
    here = Mirror(store.address("data"), write(tmp_path / "here", files))
    here.push()
    assert store.contents("data/") == files
    there = pulled(store, tmp_path / "there")
    assert files_in(there.local) == files
    here.push()
    there.push()
    assert store.requests == []
    here.pull()
    there.pull()
    assert {method for method, _ in store.requests} == {"GET"}
    assert {key for _, key in store.requests} == {""}  # two listings, and no object


def test_only_the_requested_part_is_transferred(store: ObjectStore, tmp_path: Path) -> None:
    here = Mirror(store.address("data"), write(tmp_path / "here", SMALL_SET))
    here.push(f"{FILM}/")
    assert store.contents("data/") == {name: content for name, content in SMALL_SET.items() if name.startswith(FILM)}
    here.push()
    there = Mirror(store.address("data"), tmp_path / "there")
    there.pull("README.md")
    assert files_in(there.local) == {"README.md": b"a card"}
    there.pull("shards")
    assert files_in(there.local).keys() == {"README.md", "shards/index.json"}


def test_locks_caches_and_temporary_names_stay_where_they_are(store: ObjectStore, tmp_path: Path) -> None:
    hidden = {".lock": b"", ".cache/hashes.json": b"", f"{FILM}/.film.json.x": b"", "shards/.cache/a": b""}
    pushed(store, tmp_path / "here", SMALL_SET | hidden)
    assert store.contents("data/") == SMALL_SET
    store.put("data/.lock", b"of another")
    store.put("data/films/", b"")  # the way web consoles make a folder
    assert files_in(pulled(store, tmp_path / "there").local) == SMALL_SET
    assert not (tmp_path / "there" / ".lock").exists()


def test_files_removed_on_one_side_are_removed_on_the_other(store: ObjectStore, tmp_path: Path) -> None:
    here = pushed(store, tmp_path / "here")
    there = pulled(store, tmp_path / "there")
    clip = f"{FILM}/clips/film-01234567-000000000.mp4"
    (here.local / clip).unlink()
    here.push()
    assert store.written() == [("DELETE", f"data/{clip}")]
    write(there.local, {f"{FILM}/clips/new.mp4": b"never pushed"})
    there.pull()
    assert files_in(there.local) == files_in(here.local) | {f"{FILM}/clips/new.mp4": b"never pushed"}


def test_an_interrupted_push_is_continued(store: ObjectStore, tmp_path: Path) -> None:
    def stop(done: float, total: float) -> None:
        raise KeyboardInterrupt

    here = Mirror(store.address("data"), write(tmp_path / "here", SMALL_SET))
    with pytest.raises(KeyboardInterrupt):
        here.push(progress=stop)
    assert "data/dataset.json" not in store.contents()
    here.pull()
    here.push()
    assert store.contents("data/") == files_in(here.local) == SMALL_SET


# --- no reader sees a partial result ---------------------------------------------------------------------------------


def check_whole(contents: Files) -> None:
    """Check that all files named by the records exist at this moment: a stage's files, shards, films."""
    for name in contents:
        if re.fullmatch(r"films/[^/]+/(?!film\.|failure\.)[^/]+\.json", name):
            listed = json.loads(contents[name])["files"]
            folder = name.rpartition("/")[0]
            assert {file: marks(contents.get(f"{folder}/{file}", b"")) for file in listed} == listed, name
    for shard in json.loads(contents.get("shards/index.json", b'{"shards": []}'))["shards"]:
        assert f"shards/{shard['name']}" in contents
    for film in json.loads(contents.get("dataset.json", b'{"films": []}'))["films"]:
        assert f"films/{film}/film.json" in contents


class Onlooker:
    """Observer that checks the whole store after every write, and calls back after a number of writes."""

    def __init__(self, store: ObjectStore, after: int = -1, then: Callable[[], None] = lambda: None) -> None:
        self.store, self.left, self.then = store, after, then
        self.faults: list[str] = []
        self.moments = 0
        store.seen = self

    def __call__(self, request: tuple[str, str]) -> None:
        if request[0] not in ("PUT", "DELETE"):
            return
        self.moments += 1
        try:
            check_whole(self.store.contents("data/"))
        except AssertionError as fault:
            self.faults.append(f"after {request}: {fault}")
        self.left -= 1
        if self.left == 0:
            self.then()


def test_readers_find_complete_results_at_every_moment_of_a_push(store: ObjectStore, tmp_path: Path) -> None:
    onlooker = Onlooker(store)
    here = Mirror(store.address("data"), write(tmp_path, dataset("first", clips=6)))
    here.push()
    puts = [key for method, key in store.written() if method == "PUT"]
    assert puts[-3:] == ["data/shards/index.json", "data/README.md", "data/dataset.json"]
    store.requests.clear()
    remake(here.local, dataset("second", clips=4))
    here.push()
    after_all_puts = store.written()[store.written().index(("PUT", "data/dataset.json")) + 1 :]
    assert sorted(after_all_puts) == [
        ("DELETE", f"data/{FILM}/clips/4.mp4"),
        ("DELETE", f"data/{FILM}/clips/5.mp4"),
        ("DELETE", "data/shards/train/film-01234567-000002.tar"),
    ]
    assert store.contents("data/") == dataset("second", clips=4)
    assert onlooker.faults == []
    assert onlooker.moments == len(dataset("first", clips=6)) + len(dataset("second", clips=4)) + 2 * 4 + 3


@pytest.mark.slow
@pytest.mark.parametrize("writes", [3, 12])
def test_a_killed_push_leaves_complete_results_and_is_continued(
    store: ObjectStore, tmp_path: Path, writes: int
) -> None:
    here = Mirror(store.address("data"), write(tmp_path / "here", dataset("first", clips=6)))
    here.push()
    after = dataset("second", clips=4)
    remake(here.local, after)
    program = (
        "import sys, pathlib, pipeline.remote.mirror as m; m.Mirror(sys.argv[1], pathlib.Path(sys.argv[2])).push()"
    )
    child = subprocess.Popen([sys.executable, "-c", program, here.remote.address, str(here.local)])
    onlooker = Onlooker(store, writes, lambda: os.kill(child.pid, signal.SIGKILL))
    assert child.wait() == -signal.SIGKILL
    assert store.contents("data/") != after
    here.pull()
    assert files_in(here.local) == after
    here.push()
    assert store.contents("data/") == after
    assert onlooker.faults == []
    assert files_in(pulled(store, tmp_path / "there").local) == after
    here.push()
    assert store.requests == []


# --- last push wins --------------------------------------------------------------------------------------------------


def test_local_changes_stay_while_the_store_is_unchanged(store: ObjectStore, tmp_path: Path) -> None:
    here = pushed(store, tmp_path / "here")
    write(here.local, {f"{FILM}/crop.parquet": b"newer"})
    (here.local / FILM / "crop.json").unlink()
    changed = files_in(here.local)
    here.pull()
    assert files_in(here.local) == changed
    here.push()
    assert store.contents("data/") == changed


def test_a_film_pushed_by_another_machine_replaces_the_local_one_completely(store: ObjectStore, tmp_path: Path) -> None:
    here, other = pushed(store, tmp_path / "here"), pulled(store, tmp_path / "other")
    (here.local / FILM / "crop.json").unlink()  # killed in the middle of a stage
    write(here.local, {f"{FILM}/crop.parquet": b"half of a run", "README.md": b"changed here", "new.txt": b"new"})
    write(other.local, {f"{FILM}/film.json": b'{"name": "other"}'})
    other.push()
    here.pull()
    assert files_in(here.local) == files_in(other.local) | {"README.md": b"changed here", "new.txt": b"new"}


def test_lost_notes_cost_a_transfer_and_no_data(store: ObjectStore, tmp_path: Path) -> None:
    here = pushed(store, tmp_path / "here")
    (here.local / ".cache" / "mirror.json").write_text("{")
    here.pull()
    assert files_in(here.local) == store.contents("data/") == SMALL_SET


def test_a_folder_mirrors_one_address_only(store: ObjectStore, tmp_path: Path) -> None:
    pushed(store, tmp_path)
    with pytest.raises(RemoteError, match=r"is the copy of s3://bucket/data; take another folder"):
        Mirror(store.address("other"), tmp_path)


def test_a_copy_on_a_file_system_without_locks_is_named(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: object, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(DiskError, match=rf"{tmp_path}: the file system has no file locks"):
        pushed(store, tmp_path)


# --- training --------------------------------------------------------------------------------------------------------


def test_training_reads_the_shards_at_their_address(store: ObjectStore, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1, scenes=4, clips=1)
    index = write_shards(dataset, ShardSettings(samples=2, val_share=0.3))
    here = Mirror(store.address("data"), tmp_path)
    here.push()
    assert open_index(store.address("data")) == index
    shard = open_shards(store.address("data"), "train")[0]
    samples = dict(unpack(shard, ("mp4", "json")))
    assert next(iter(samples)) == shard.entry.first_clip
    clip = dataset.folder(shard.entry.film_id).clip_path(shard.entry.first_clip)
    assert samples[shard.entry.first_clip]["mp4"] == clip.read_bytes()
    write(here.local, {f"shards/{shard.name}": bytes(shard.entry.bytes)})  # as between the shards and the new index
    here.push()
    with pytest.raises(UserError, match="is damaged"):
        list(unpack(shard, ("mp4",)))
