"""Server process: starts, restarts and ends of a real program, and no process left behind."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.captions.lmdeploy_server import SERVED, Listening, lmdeploy_program
from pipeline.captions.server_process import Limits, ServerProgram, check_port, keep_serving, log_end
from pipeline.core.errors import UserError
from tests.support.builds.real_builds import wait_until_gone
from tests.support.servers.prefect_server import free_port
from tests.support.servers.stand_in_lmdeploy import stand_in_environment, starts_of

QUICK = Limits(start_seconds=30, restarts=2, first_pause_seconds=0.1, steady_seconds=600)


class Watched:
    """Watcher that stops the server once it has served so many times."""

    def __init__(self, stop_at: int = 1) -> None:
        self.stop, self.stop_at = threading.Event(), stop_at
        self.lines: list[str] = []
        self.starting_lines: list[str] = []
        self.served = 0

    def starting(self, seconds: float, last_line: str) -> None:  # noqa: ARG002
        self.starting_lines.append(last_line)

    def serving(self) -> None:
        self.served += 1
        if self.served == self.stop_at:
            self.stop.set()

    def say(self, line: str) -> None:
        self.lines.append(line)


def program_of(environment: Path) -> ServerProgram:
    return lmdeploy_program(environment, SERVED["24gb"], Listening(port=free_port()), environment.parent / "server.log")


def run(tmp_path: Path, watched: Watched, limits: Limits = QUICK, **behaviour: Any) -> list[dict[str, Any]]:
    """Serve with the stand-in until the watcher stops it; check that no process is left."""
    environment = stand_in_environment(tmp_path, **behaviour)
    try:
        keep_serving(program_of(environment), limits, watched.stop, watched)
    finally:
        starts = starts_of(environment)
        wait_until_gone("of the server", lambda: alive(starts))
    return starts


def alive(starts: list[dict[str, Any]]) -> list[psutil.Process]:
    pids = [start[name] for start in starts for name in ("pid", "child")]
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return [process for process in processes if process.status() != psutil.STATUS_ZOMBIE]


def test_a_slow_start_is_shown_and_the_end_leaves_no_process(tmp_path: Path) -> None:
    watched = Watched()
    starts = run(tmp_path, watched, start_seconds=1.2)
    assert (len(starts), watched.served, watched.lines) == (1, 1, [])
    assert watched.starting_lines[-1] == "loading: 100%"


@pytest.mark.slow
def test_a_server_that_dies_is_started_again_with_growing_pauses(tmp_path: Path) -> None:
    watched = Watched(stop_at=3)
    assert len(run(tmp_path, watched, dies_after=[0.5, 0.5])) == 3
    said = [line for line in watched.lines if "restart" in line]
    assert said == [
        "the server ended by signal SIGKILL; out of memory?; restart 1 of 2 in 0.1 s",
        "the server ended by signal SIGKILL; out of memory?; restart 2 of 2 in 0.2 s",
    ]


@pytest.mark.slow
def test_restarts_are_bounded(tmp_path: Path) -> None:
    watched = Watched(stop_at=99)
    with pytest.raises(UserError, match="started again 2 times, and ended by signal SIGKILL"):
        run(tmp_path, watched, dies_after=[0.5] * 9)
    assert watched.served == 3


@pytest.mark.slow
def test_a_time_of_service_earns_new_restarts(tmp_path: Path) -> None:
    watched = Watched(stop_at=3)
    assert len(run(tmp_path, watched, replace(QUICK, restarts=1, steady_seconds=0.2), dies_after=[0.9] * 9)) == 3


def test_a_failed_start_shows_the_end_of_the_log_and_is_not_repeated(tmp_path: Path) -> None:
    watched = Watched()
    with pytest.raises(UserError, match=r"did not start: it ended with exit code 3; .*server\.log"):
        run(tmp_path, watched, exit_code=3)
    assert watched.lines == ["  | loading: 100%", "  | ValueError: no such model"]


def test_a_server_that_never_answers_is_ended(tmp_path: Path) -> None:
    watched = Watched()
    with pytest.raises(UserError, match=r"did not answer at .* within 1 s"):
        run(tmp_path, watched, replace(QUICK, start_seconds=1), is_mute=True)


def test_a_stop_during_the_start_ends_the_server(tmp_path: Path) -> None:
    watched = Watched()
    threading.Timer(0.7, watched.stop.set).start()
    started = time.monotonic()
    run(tmp_path, watched, is_mute=True)
    assert time.monotonic() - started < 15
    assert watched.served == 0


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=r"listens at 127.0.0.1 port [0-9]+ already"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_the_end_of_a_log_is_plain_and_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 40_000 + b"\n" + b"\n".join(b"line %d" % number for number in range(30)) + b"\n\xff\n")
    assert log_end(log) == [*(f"line {number}" for number in range(11, 30)), "\N{REPLACEMENT CHARACTER}"]
