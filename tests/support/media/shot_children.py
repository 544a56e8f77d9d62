"""Kill of a child process at its start, like a crash of native code."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 20
"""Time limit for the start of a child."""


@contextmanager
def next_child_is_shot(sent: signal.Signals) -> Iterator[None]:
    """Send a signal to the first child process that starts inside the block; an error if there was none."""
    over = threading.Event()
    shot: list[int] = []
    thread = threading.Thread(target=_shoot, args=(sent, over, shot))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert shot, "no child process was started"


def _shoot(sent: signal.Signals, over: threading.Event, shot: list[int]) -> None:
    deadline = time.monotonic() + SECONDS
    while not shot and not over.is_set() and time.monotonic() < deadline:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, sent)  # its imports take tenths of a second: it has no result yet
                shot.append(child.pid)
        time.sleep(0.005)
