"""Process guard: runs a program in a process group of its own, and ends the whole group when the guard's input closes.

    python process_guard.py PROGRAM ARGUMENT...

The caller keeps the other end of the input open. It closes it to stop the program, and the system closes it when the
caller ends, even by SIGKILL, so that the program and its children never outlive the caller. This file runs as a script
without the project: it imports the standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

STOP_SECONDS = 20.0
"""Time between SIGTERM and SIGKILL."""


def main(words: list[str]) -> int:
    """Run the program to its end, or until the input closes; return its exit code, 128 + number after a signal."""
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_stop_at_end_of_input, args=(child,), daemon=True).start()
    code = child.wait()
    _signal_group(child, signal.SIGKILL)  # processes that it has left behind
    return code if code >= 0 else 128 - code


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
