"""Processes of the data loader, which read examples: their signals, and the way in which tensors leave them."""

from __future__ import annotations

import signal
import threading
from types import MethodType

from torch.multiprocessing import set_sharing_strategy


def begin_reading(_number: int) -> None:
    """Set up a process of the data loader; its `worker_init_fn`.

    SIGTERM and SIGINT are ignored: a scheduler or a terminal sends them to all processes of a job, and the training
    process still needs the examples of the step in progress. Tensors are shared by name and not by open files, which
    `ulimit -n` bounds: a step of phase b on one GPU has 384 windows of five tensors each, and several steps are read
    ahead.

    Exit calls of services are dropped, since their threads are not in this process: Prefect's fail there, the process
    ends with 1, and the training with it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    calls = threading._threading_atexits  # type: ignore[attr-defined]  # those of pools are functions, and do hold
    calls[:] = [call for call in calls if not isinstance(call.func, MethodType)]
