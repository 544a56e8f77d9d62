"""Commands of the demos, run as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run_command(demo: str, *words: str | Path, beside: Path | None = None) -> str:
    """Run a command of `animegamer`, and return its last output line: the path of its result.

    Args:
        demo: make target that resumes.
        words: the command.
        beside: file for the messages of a command that runs beside others, with one thread.

    Raises:
        SystemExit: it failed; the message names the make target.
    """
    command = [sys.executable, "-m", "flows.cli", *map(str, words)]
    environment = os.environ | _ONE_THREAD if beside else None
    with beside.open("a", encoding="utf-8") if beside else nullcontext() as messages:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=messages, env=environment, text=True, check=False)
    if done.returncode:
        said = " ".join(map(str, words[:2]))
        sys.exit(f"the demo ends here: animegamer {said} failed; `make {demo}` resumes from there")
    return done.stdout.splitlines()[-1]
