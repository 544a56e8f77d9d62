"""Atomic files: complete or absent, leftovers of a kill swept, and a folder with one holder at a time."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from pipeline.core.atomic import HeldError, append_lines, held, read_locked, replacing, sweep, write_json
from pipeline.core.errors import DiskError


def names(path: Path) -> list[str]:
    return sorted(child.name for child in path.iterdir())


def test_a_file_appears_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file.json"
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert names(path.parent) == ["file.json"]


def test_a_crash_while_writing_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")

    def crash() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.json"]


def write_half(path: Path) -> None:
    """Write half of a file in a process that is killed then."""
    child = os.fork()
    if child == 0:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    write_half(path)
    assert path.read_text() == "old"


def test_json_is_deterministic_and_rejects_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "one.json", {"b": "é", "a": [1, 2]})
    write_json(tmp_path / "two.json", {"a": [1, 2], "b": "é"})
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "three.json", {"a": float("nan")})
    assert names(tmp_path) == ["one.json", "two.json"]


def test_only_leftovers_of_killed_processes_are_swept(tmp_path: Path) -> None:
    ours = ("film.json", ".lock", ".hidden", "clips/a.mp4", ".cache/hashes.json", "animegamer-tmp-notes.md")
    users = (".env.template", ".env.database", "clips/.dvc.settings.json", ".notes.md.20241126.md")
    for path in (keep := {tmp_path / name for name in (*ours, *users)}):
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    for name in ("film.json", "clips/a.mp4", "a"):
        write_half(tmp_path / name)
    left = {path for path in tmp_path.rglob("*") if path.is_file()} - keep
    assert len(left) == 3
    sweep(tmp_path, deep=False)
    assert {path.parent.name for path in left if path.exists()} == {"clips"}
    sweep(tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == keep


def _hold(folder: Path, says: Connection) -> None:
    with held(folder, "the first"):
        says.send("held")
        signal.pause()


def test_the_error_names_the_holder_and_a_kill_releases_the_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    hears, says = context.Pipe(duplex=False)
    first = context.Process(target=_hold, args=(tmp_path, says), daemon=True)
    first.start()
    assert hears.recv() == "held"
    with pytest.raises(HeldError, match=rf"`the first`, process {first.pid} on .*, since 20"), held(tmp_path, "second"):
        pass
    first.kill()
    first.join()
    with held(tmp_path, "third"):
        pass


def test_a_lock_that_is_a_pipe_or_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(DiskError, match="is not a file"), held(tmp_path, "one"):
        pass
    (tmp_path / "other" / ".lock").mkdir(parents=True)
    with pytest.raises(DiskError, match="is not a file"), held(tmp_path / "other", "one"):
        pass


def test_a_held_folder_is_locked_within_the_process_too(tmp_path: Path) -> None:
    with held(tmp_path, "one"):
        with pytest.raises(HeldError, match="`one`"), held(tmp_path, "two"):
            pass
        with held(tmp_path / "another", "two"):
            pass
    with held(tmp_path, "three"):
        assert "three" in (tmp_path / ".lock").read_text()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def flock(file: object, kind: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    named = rf"{tmp_path}: the file system has no file locks .*name another folder"
    for lock in (held, read_locked):
        with pytest.raises(DiskError, match=named), lock(tmp_path, "building"):
            pass
    with pytest.raises(DiskError, match=named):
        append_lines(tmp_path / "review.jsonl", b"{}\n")
    assert not (tmp_path / "review.jsonl").read_bytes()
