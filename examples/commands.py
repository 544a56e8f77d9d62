"""Commands of the examples, run as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run_command(*words: str | Path, beside: Path | None = None) -> str:
    """Run a command of `animegamer`, and return its last output line: the path of its result; "" if it prints none.

    Args:
        words: the command.
        beside: file for the messages of a command that runs beside others, with one thread.

    Raises:
        SystemExit: it failed; the message says how to go on.
    """
    command = [sys.executable, "-m", "flows.cli", *map(str, words)]
    environment = os.environ | _ONE_THREAD if beside else None
    with beside.open("a", encoding="utf-8") if beside else nullcontext() as messages:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=messages, env=environment, text=True, check=False)
    if done.returncode:
        said = " ".join(map(str, words[:2]))
        why = f" ({beside} says why)" if beside else ""
        go_on = "once that is mended, the same command goes on from there"
        sys.exit(f"this step ends here: animegamer {said} failed{why}; {go_on}")
    return done.stdout.rstrip("\n").rpartition("\n")[-1]
