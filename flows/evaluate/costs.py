"""Cost of a turn: the time to its first frame, and the peak memory of the GPU, or of the process without one."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from flows.game.records import TurnCost
from models.turns import Turn

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Value that makes Linux measure the peak of resident memory anew."""


def with_costs(turns: Iterator[Turn], device: torch.device) -> Iterator[tuple[Turn, TurnCost]]:
    """Yield each turn with its cost: all agents draw a shot whole, so its first frame is there with its last."""
    while True:
        _reset_peak(device)
        started = time.perf_counter()
        turn = next(turns, None)
        if turn is None:
            return
        yield turn, TurnCost(time.perf_counter() - started, _peak_bytes(device))


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # not Linux, or a container that forbids it: the peak is that of the process so far
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if _STATUS.exists():
        lines = dict(line.split(":", 1) for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
