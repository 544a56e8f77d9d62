"""Shared folders: made once per test run by the first process that needs them, removed at the end of the run.

    folder = shared_folder("tiny-checkpoint", lambda folder: new_checkpoint(folder, tiny_config(), seed=1))

They are read-only: a test that changes something takes a copy. The processes of pytest-xdist find the location in the
environment, which the first process sets before it starts them.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

VARIABLE = "ANIMEGAMER_SHARED_TEST_FOLDERS"


def shared_folder(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of this name; `make` fills it if no process of the run has done so."""
    folder, made = run_folder() / name, run_folder() / f"{name}.made"
    with (run_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # left by a process that failed half-way
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def own_folder(name: str) -> Path:
    """Return a new folder for this process alone, removed with the others."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=run_folder()))


def run_folder() -> Path:
    """Return the parent of the run's shared folders, made by its first process."""
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = tempfile.mkdtemp(prefix="animegamer-tests-")
        atexit.register(_remove, Path(os.environ[VARIABLE]), os.getpid())
    return Path(os.environ[VARIABLE])


def _remove(folder: Path, maker: int) -> None:
    if os.getpid() == maker:  # not in a fork
        shutil.rmtree(folder, ignore_errors=True)
