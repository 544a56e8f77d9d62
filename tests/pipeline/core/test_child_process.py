"""Work in a child process: results and errors returned, deaths reported, no process left behind."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipeline.core.child_process import call_in_child
from pipeline.core.progress import Progress, silent
from pipeline.core.records import RecordError

ROOT = Path(__file__).parents[3]


def square(number: int, progress: Progress) -> int:
    progress(1, 2)
    return number**2


def refuse(reason: str, progress: Progress) -> None:
    raise RecordError("a record", reason)


def ask_for_too_much(_: object, progress: Progress) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))
    bytes(10**12)


def crash(_: object, progress: Progress) -> None:
    ctypes.string_at(0)


def say_much(size: int, progress: Progress) -> bytes:
    progress(1, 2)
    return bytes(size)


def linger(_: object, progress: Progress) -> None:
    progress(os.getpid(), 0)
    time.sleep(600)


def test_result_and_progress_are_returned() -> None:
    reports: list[tuple[float, float]] = []
    assert call_in_child(square, 12, "film", lambda done, total: reports.append((done, total))) == 144
    assert reports == [(1, 2)]


def test_a_refusal_has_its_reason() -> None:
    with pytest.raises(RecordError) as caught:
        call_in_child(refuse, "too dark", "film-1", silent)
    assert (caught.value.record_id, caught.value.reason) == ("film-1", "too dark")


def test_lack_of_memory_fails_the_record_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RecordError, match=r"film-1: memory ran out \(MemoryError\); close other programs"):
        call_in_child(ask_for_too_much, None, "film-1", silent)
    assert capfd.readouterr().err == ""


def test_a_crash_in_native_code_fails_the_record() -> None:
    with pytest.raises(RecordError, match="film-1: the decoder died by signal SIGSEGV"):
        call_in_child(crash, None, "film-1", silent)


def test_a_kill_in_the_middle_of_a_long_result_is_reported() -> None:
    """The child blocks on a full pipe with the beginning of its result while the parent handles its progress."""

    def kill_it_while_it_sends(done: float, total: float) -> None:
        (child,) = multiprocessing.active_children()
        deadline = time.monotonic() + 20
        while psutil.Process(child.pid).status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.5)
        child.kill()

    with pytest.raises(RecordError, match="film-1: the decoder died by signal SIGKILL"):
        call_in_child(say_much, 10_000_000, "film-1", kill_it_while_it_sends)


PARENT = """
from pipeline.core.child_process import call_in_child
from tests.pipeline.core.test_child_process import {work}
if __name__ == "__main__":
    call_in_child({work}, None, "film", lambda pid, _: print(int(pid), flush=True))
"""


def start_parent(script: Path, work: str, **streams: int) -> subprocess.Popen[str]:
    script.write_text(PARENT.format(work=work))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(script)], env=environment, text=True, **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_the_child_ends_with_its_parent(tmp_path: Path, sent: signal.Signals) -> None:
    parent = start_parent(tmp_path / "parent.py", "linger", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.send_signal(sent)
    assert parent.wait(timeout=20) != 0
    deadline = time.monotonic() + 20
    while alive(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Return True if a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
