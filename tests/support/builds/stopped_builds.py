"""Builds killed by SIGKILL at a given write: just before a complete file is renamed into place.

    assert run(request, kill_at=3) == -signal.SIGKILL
    assert run(request) == 0

Every file of a dataset is written under a temporary name and renamed (`pipeline/core/atomic.py`), so counting renames
counts writes. A build runs in a fork of a process that has imported the program. `probe` and `cut`, which otherwise run
in child processes, run in that fork too, so that their writes are counted.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pipeline.plan.request import BuildRequest
from pipeline.stages import cut, probe
from tests.support.datasets.built_dataset import build_here

DEADLINE_SECONDS = 120
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])


def run(request: BuildRequest, kill_at: int = 0, below: str = "") -> int:
    """Build in a separate process and return its exit code.

    Args:
        request: request of the build.
        kill_at: number of the rename before which the build is killed, counted from 1; 0: never.
        below: count only files whose path has this folder in it.
    """
    process = _FORKS.Process(target=_build, args=(request, kill_at, below))
    process.start()
    process.join(DEADLINE_SECONDS)
    process.kill()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _build(request: BuildRequest, kill_at: int, below: str) -> None:
    for module in (probe, cut):
        module.call_in_child = _call_here
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "os.rename" and below in str(arguments[1]):
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    build_here(request)


def _call_here(work: Callable[..., Any], argument: Any, record_id: str, progress: Any) -> Any:
    return work(argument, progress)
