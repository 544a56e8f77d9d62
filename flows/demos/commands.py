"""Commands of the demos, run as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_command(demo: str, *words: str | Path) -> str:
    """Run a command of `animegamer`, and return its last output line: the path of its result.

    Raises:
        SystemExit: it failed; the message names the make target `demo` that resumes.
    """
    command = [sys.executable, "-m", "flows.cli", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        said = " ".join(map(str, words[:2]))
        sys.exit(f"the demo ends here: animegamer {said} failed; `make {demo}` resumes from there")
    return done.stdout.splitlines()[-1]
