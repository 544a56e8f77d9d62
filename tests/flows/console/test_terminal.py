"""Errors of the commands: one line for user errors, a traceback for bugs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flows.cli import app
from flows.console.terminal import user_errors_reported
from pipeline.core.atomic import held, replacing
from pipeline.core.errors import DiskError, NoRoomError, disk_errors


def test_lack_of_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (MemoryError(), RuntimeError("can't start new thread")):
        with pytest.raises(typer.Exit), user_errors_reported():
            raise error
        assert capsys.readouterr().err.startswith("animegamer: memory ran out (")
    with pytest.raises(RuntimeError, match="a bug"), user_errors_reported():
        raise RuntimeError("a bug")


LIMITED = """
import resource, sys
from typer.testing import CliRunner
from flows.cli import app
for limit, allowed in ((resource.RLIMIT_NOFILE, 16), (resource.RLIMIT_AS, 2 * 10**9)):
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (allowed, hard))
    done = CliRunner().invoke(app, sys.argv[1:])
    resource.setrlimit(limit, (soft, hard))
    print(done.exit_code, done.output, end="")
"""


def test_a_limit_too_low_for_a_build_is_named_at_its_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, "build", "film.mp4", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    files, memory = done.stdout.splitlines()
    assert "1 animegamer: `ulimit -n` allows 16 open files, and a build needs 32: raise it in this shell" in files
    assert "1 animegamer: `ulimit -v` allows 2,000,000,000 bytes of memory, and a build needs 2,5" in memory
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["status", "verify", "report", "calibrate"])
def test_a_user_error_is_one_line_and_a_traceback_with_debug(tmp_path: Path, command: str) -> None:
    plain = CliRunner().invoke(app, [command, str(tmp_path / "typo")])
    debug = CliRunner().invoke(app, ["--debug", command, str(tmp_path / "typo")])
    line = f"animegamer: {tmp_path / 'typo'}: no dataset here (it has no dataset.json); `animegamer build --out`"
    assert (plain.exit_code, debug.exit_code) == (1, 1)
    assert plain.stderr.startswith(line)
    assert plain.stderr.count("\n") == 1
    assert debug.stderr.startswith("Traceback (most recent call last):\n")
    assert ", in open_dataset\n" in debug.stderr
    assert debug.stderr.endswith(plain.stderr)


def test_a_file_in_place_of_the_dataset_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"")
    (tmp_path / "data").write_text("a file is in the way")
    done = CliRunner().invoke(app, ["build", str(tmp_path / "film.mp4"), "--out", str(tmp_path / "data")])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"animegamer: {tmp_path / 'data'}: cannot ")
    assert "File exists" in done.stderr


def test_disk_errors_are_distinguished_from_bugs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DiskError, match=r"file/inside: cannot .*Not a directory"),
        disk_errors(tmp_path / "file" / "inside"),
    ):
        (tmp_path / "file" / "inside").write_text("")
    with pytest.raises(DiskError, match="File exists"), replacing(tmp_path / "file" / "inside"):
        pass
    with pytest.raises(DiskError, match="File exists"), held(tmp_path / "file", "a test"):
        pass
    with pytest.raises(NoRoomError, match=r"full: cannot .*No space left on device.*; make room"):
        _write_to_a_full_disk()
    with pytest.raises(FileNotFoundError), disk_errors(tmp_path):
        (tmp_path / "gone").read_text()


def _write_to_a_full_disk() -> None:
    with disk_errors(Path("full")):
        Path("/dev/full").write_text("more than fits")
