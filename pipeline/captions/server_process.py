"""Server process: a program kept serving an address until it is stopped, with a log, restarts and a clean end.

    keep_serving(ServerProgram(words, "http://127.0.0.1:23333/v1/models", log), Limits(), stop, watcher)

A program that does not start is an error at once: starting it again would fail again. One that dies after it has
served is started again, after a pause that doubles, up to a number of restarts in a row.

The program runs under a guard, a process that starts it in a process group of its own and ends the whole group when
the guard's input closes. We keep the other end of that input open. The system closes it when this process ends, even by
SIGKILL, so neither the program nor its children outlive it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

import httpx

from pipeline.core.errors import UserError, disk_errors

POLL_SECONDS = 0.2
PROBE_SECONDS = 10.0
STOP_SECONDS = 20.0
"""Time between SIGTERM and SIGKILL."""
LOG_LINES, LOG_BYTES = 20, 16_384
"""Most lines and bytes of the end of the log that are shown."""


class Watcher(Protocol):
    """Interface of the display of a server's life."""

    def starting(self, seconds: float, last_line: str) -> None:
        """Show that the server has been starting for so long, and the last line of its log."""
        ...

    def serving(self) -> None:
        """Show that the server answers now."""
        ...

    def say(self, line: str) -> None:
        """Show a line that stays."""
        ...


@dataclass(frozen=True)
class ServerProgram:
    """Program that serves an address, and the file that takes its output."""

    words: tuple[str, ...]
    address: str
    """Address that answers a GET with success as soon as the server can be used."""
    log: Path
    key: str = ""
    """Key sent as bearer token with that GET."""


@dataclass(frozen=True)
class Limits:
    """Bounds of starts and restarts."""

    start_seconds: float = 7200
    """Longest start; the first one may download tens of gigabytes."""
    restarts: int = 5
    """Most restarts in a row."""
    first_pause_seconds: float = 5
    longest_pause_seconds: float = 300
    steady_seconds: float = 600
    """Time of service after which the restarts are counted anew."""


@dataclass(frozen=True)
class _Life:
    """One start of the program: its time of service, and its end; no end if it was stopped."""

    served_seconds: float
    end: str | None

    @property
    def has_served(self) -> bool:
        return self.served_seconds > 0


def keep_serving(program: ServerProgram, limits: Limits, stop: threading.Event, watcher: Watcher) -> None:
    """Keep the program serving until `stop` is set, then end it.

    Args:
        program: the program; its log is written anew.
        limits: bounds of starts and restarts.
        stop: set by a signal handler or another thread.
        watcher: display of starts, service and ends.

    Raises:
        UserError: the program does not start, or died more often in a row than it may be restarted.
    """
    with disk_errors(program.log):
        program.log.parent.mkdir(parents=True, exist_ok=True)
        program.log.write_bytes(b"")
    has_served, deaths = False, 0
    while (life := _live(program, limits, stop, watcher)).end:
        has_served = has_served or life.has_served
        deaths = 1 if life.served_seconds >= limits.steady_seconds else deaths + 1
        for line in log_end(program.log):
            watcher.say(f"  | {line}")
        if not has_served:
            raise UserError(f"the server did not start: it {life.end}; the end of its log {program.log} is above")
        if deaths > limits.restarts:
            raise UserError(f"the server was started again {limits.restarts} times, and {life.end}; see {program.log}")
        pause_seconds = min(limits.first_pause_seconds * 2.0 ** (deaths - 1), limits.longest_pause_seconds)
        watcher.say(f"the server {life.end}; restart {deaths} of {limits.restarts} in {pause_seconds:g} s")
        if stop.wait(pause_seconds):
            return


def check_port(host: str, port: int) -> None:
    """Raise a UserError if a server answers there already, rather than after the model was loaded."""
    with suppress(OSError), socket.create_connection((host, port), timeout=PROBE_SECONDS):
        raise UserError(f"a server listens at {host} port {port} already: stop it, or give another port with --port")


def log_end(log: Path) -> list[str]:
    """Return the last lines of a log, without terminal codes; a progress bar counts with its last state."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
        text = file.read().decode(errors="replace")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in plain.split("\n")]
    return [line for line in lines if line][-LOG_LINES:]


def _live(program: ServerProgram, limits: Limits, stop: threading.Event, watcher: Watcher) -> _Life:
    """Run the program once, until it ends, does not answer in time, or is stopped."""
    started = time.monotonic()
    with _running(program) as process:
        while not _answers(program):
            seconds = time.monotonic() - started
            if process.poll() is not None:
                return _Life(0, _end_of(process))
            if seconds > limits.start_seconds:
                return _Life(0, f"did not answer at {program.address} within {limits.start_seconds:g} s")
            watcher.starting(seconds, "".join(log_end(program.log)[-1:]))
            if stop.wait(POLL_SECONDS):
                return _Life(0, None)
        served = time.monotonic()
        watcher.serving()
        while process.poll() is None:
            if stop.wait(POLL_SECONDS):
                return _Life(time.monotonic() - served, None)
        return _Life(time.monotonic() - served, _end_of(process))


@contextmanager
def _running(program: ServerProgram) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program under its guard; end both after the block."""
    guard = [sys.executable, "-I", "-c", f"from {__name__} import guard; guard()"]
    with program.log.open("ab") as log:
        process = subprocess.Popen(
            [*guard, *program.words], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait()


def _answers(program: ServerProgram) -> bool:
    headers = {"Authorization": f"Bearer {program.key}"} if program.key else {}
    try:
        return httpx.get(program.address, headers=headers, timeout=PROBE_SECONDS, trust_env=False).is_success
    except httpx.TransportError:
        return False


def _end_of(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    if code - 128 not in {int(each) for each in signal.Signals}:
        return f"ended with exit code {code}"
    name = signal.Signals(code - 128).name
    return f"ended by signal {name}{'; out of memory?' if name == 'SIGKILL' else ''}"


def guard() -> NoReturn:
    """Run the program in the arguments to its end, or until the input closes; exit with its code."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_stop_at_end_of_input, args=(child,), daemon=True).start()
    code = child.wait()
    _signal_group(child, signal.SIGKILL)  # processes that it has left behind
    sys.exit(code if code >= 0 else 128 - code)


def _stop_at_end_of_input(child: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    _signal_group(child, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(STOP_SECONDS)
    _signal_group(child, signal.SIGKILL)


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
