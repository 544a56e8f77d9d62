"""Builds as a user runs them, in processes that can be killed, with helpers for tests of kills, faults and safety.

The films show numbers that the caption server reads (`caption_server.py`), one in each scene of one clip:

    films = numbered_films(tmp_path / "films")
    with forked_builds(tmp_path) as builds:
        build = builds.start(*films, "--out", out, "--config", config)
        if build.wait(3.5) is None:
            build.kill()

A command takes seconds to import its modules; `forked_builds` does it only once: one process imports the program, and
every build is a fork of it that does the work of the command, without a Prefect server as most users run it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from examples.world.barcode import paint_stripes
from examples.world.textures import Picture
from pipeline.core.config import checked
from pipeline.core.toml import as_toml
from tests.support.media.films import make_film

ROOT = Path(__file__).parents[3]
SCENES = 4
SCENE_FRAMES = 52
"""Frames at 24 per second: enough for one clip of 2 seconds and not for two."""
DEADLINE_SECONDS = 240
NOT_PART_OF_THE_DATA = (".cache", ".lock")

_FORKER = """
import json, os, resource, sys, threading
from flows.commands.build import set_prefect_defaults
set_prefect_defaults()
import flows.cli, flows.dataset, flows.console.summary, pipeline.plan.publish
assert threading.active_count() == 1, "only a process of one thread can be forked safely"
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2)
        if job["largest_file"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"], resource.RLIM_INFINITY))
        sys.argv = ["animegamer", *job["arguments"]]
        flows.cli.main()
    try:
        os.setpgid(pid, pid)
    except PermissionError:
        pass  # it has done so itself
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def numbered_films(folder: Path, count: int = 3) -> list[Path]:
    """Films of 8.7 seconds, four scenes of one clip each; the clips are numbered on from film to film."""
    folder.mkdir(parents=True, exist_ok=True)
    return [numbered_film(folder / f"film-{film}.mp4", SCENES * film) for film in range(count)]


def numbered_film(path: Path, first: int) -> Path:
    """One such film, with clips numbered from `first` on."""

    def paint(frame: int, picture: Picture) -> None:
        paint_stripes(picture, first + frame // SCENE_FRAMES)

    starts = [SCENE_FRAMES * scene for scene in range(SCENES)]
    frames = SCENES * SCENE_FRAMES
    return make_film(path, frames=frames, size=(360, 240), scenes=starts, barcode=False, paint=paint)


def write_config(path: Path, **sections: Mapping[str, Any]) -> Path:
    """Write a configuration for quick builds, with these sections changed."""
    quick = {"looks": {"text": False}, "clips": {"width": 180, "height": 120}, "run": {"threads": 1}}
    path.write_text(as_toml(checked({**quick, **sections}, "test")), encoding="utf-8")
    return path


class CommandBuild:
    """`animegamer build` as a command, in its own process group, without a Prefect server."""

    def __init__(self, arguments: Sequence[object], log: Path, environment: Mapping[str, str], cwd: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "flows.cli", "build", *map(str, arguments)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int | None:
        """Return the exit code, or None if it still runs after so many seconds."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Send SIGKILL to the whole group; return when the build itself is dead."""
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_SECONDS)


class Commands:
    """Starter of whole commands; `home` is Prefect's folder, shared by all of them."""

    def __init__(self, home: Path, cwd: Path = ROOT, **environment: str) -> None:
        self.home, self._cwd = home, cwd
        self._environment = _environment(home, environment)
        self._log = home.with_name("commands.log")

    def start(self, *arguments: object) -> CommandBuild:
        return CommandBuild(arguments, _fresh(self._log), self._environment, self._cwd)


class ForkedBuild:
    """`animegamer build` in a fork of a process that has imported it."""

    def __init__(self, forker: subprocess.Popen[str], log: Path) -> None:
        self._forker = forker
        self.log = log
        self.pid = int(_line(forker))
        self._code: int | None = None

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int | None:
        if self._code is None and select.select([self._forker.stdout], [], [], max(seconds, 0))[0]:
            self._code = int(_line(self._forker))
        return self._code

    def kill(self) -> None:
        if self._code is None:  # until then it is at worst a zombie: its id cannot be reused
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()


class ForkedBuilds:
    """Starter of one build at a time, see `forked_builds`."""

    def __init__(self, forker: subprocess.Popen[str], log: Path) -> None:
        self.pid = forker.pid
        self._forker, self._log = forker, log

    def start(self, *arguments: object, largest_file: int = 0) -> ForkedBuild:
        """Start `animegamer build`; no file that it writes may grow beyond `largest_file` bytes."""
        words = ["build", *map(str, arguments)]
        job = {"arguments": words, "log": str(_fresh(self._log)), "largest_file": largest_file}
        assert self._forker.stdin
        self._forker.stdin.write(json.dumps(job) + "\n")
        self._forker.stdin.flush()
        return ForkedBuild(self._forker, self._log)

    def run(self, *arguments: object, largest_file: int = 0) -> tuple[int, str]:
        """Run a build to its end; return the exit code and the output."""
        build = self.start(*arguments, largest_file=largest_file)
        code = build.wait()
        assert code is not None, f"the build does not end; its output:\n{build.log.read_text()}"
        return code, build.log.read_text()


Build = CommandBuild | ForkedBuild
Builds = Commands | ForkedBuilds


@contextmanager
def forked_builds(folder: Path) -> Iterator[ForkedBuilds]:
    """Process that forks builds."""
    folder.mkdir(parents=True, exist_ok=True)
    forker = subprocess.Popen(
        [sys.executable, "-c", _FORKER], cwd=ROOT, env=_environment(folder / "prefect", {}), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert _line(forker) == "ready\n"
        yield ForkedBuilds(forker, folder / "builds.log")
    finally:
        assert forker.stdin
        forker.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            forker.wait(30)
        forker.kill()
        forker.wait()


def contents(root: Path) -> dict[str, bytes]:
    """Content of every file of a dataset by its path, without caches and locks."""
    return {str(path.relative_to(root)): path.read_bytes() for path in _files(root)}


def differences(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    """Names of the files that differ between the two."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def leftovers(root: Path) -> list[str]:
    """Temporary files in the dataset and in the films' caches, except the dataset's own cache, swept hourly."""
    hidden = (path for path in root.rglob(".*") if path.is_file() and path.name not in NOT_PART_OF_THE_DATA)
    return sorted(str(path.relative_to(root)) for path in hidden if path.parent != root / ".cache")


def members_of(group: int) -> list[psutil.Process]:
    """Living processes of a process group."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def users_of(home: Path) -> list[psutil.Process]:
    """Living processes with this Prefect folder in their environment, in any process group."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PREFECT_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_until_gone(what: str, living: Callable[[], Sequence[psutil.Process]]) -> None:
    """Wait for killed processes: the kernel removes them only after a moment."""
    deadline = time.monotonic() + 20
    while left := living():
        assert time.monotonic() < deadline, f"{what}: still alive: {left}"
        time.sleep(0.02)


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_file() and not set(NOT_PART_OF_THE_DATA).intersection(path.relative_to(root).parts):
            yield path


def _environment(home: Path, changes: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "COLUMNS"))}
    settings = {"PREFECT_HOME": str(home), "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    return {**inherited, **settings, **changes}


def _fresh(log: Path) -> Path:
    log.unlink(missing_ok=True)
    return log


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline()
    assert line, f"the process that forks builds has ended with {process.wait(10)}"
    return line
