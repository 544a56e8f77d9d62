"""Commands of the examples, run as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run_command(*words: str | Path, beside: Path | None = None) -> str:
    """Run a command of `animegamer`, and return its last output line (the path of its result) or an empty text.

    Args:
        words: the command.
        beside: file for the messages of a command that runs next to others, with one thread.

    Raises:
        SystemExit: the command failed.
    """
    command = [sys.executable, "-m", "flows.cli", *map(str, words)]
    environment = os.environ | _ONE_THREAD if beside else None
    with beside.open("a", encoding="utf-8") if beside else nullcontext() as messages:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=messages, env=environment, text=True, check=False)
    if done.returncode:
        said = " ".join(map(str, words[:2]))
        why = f" ({beside} says why)" if beside else ""
        sys.exit(f"animegamer {said} failed{why}; fix it, and the same command resumes this step")
    return done.stdout.rstrip("\n").rpartition("\n")[-1]
