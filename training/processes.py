"""Processes that train together, and their accelerators: one of its own for every phase.

accelerate keeps the precision of the first accelerator of a process, and refuses another; phases may differ in theirs.
It also notes `FSDP` as the kind of the process group, and an accelerator that finds this note has no FSDP plugin. Both
notes are taken back here before a new accelerator is made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, parse_flag_from_env, release_memory

from training.config import Precision
from training.precision import FROZEN_PRECISION, resolved

LONGEST_WAIT = timedelta(days=1)
"""Longest wait of a process for another one, which may be downloading or encoding; the default of 10 minutes is less
than either takes."""


def process_number() -> int:
    """Return the rank of this process; 0 if it trains alone."""
    return int(_process_group().process_index)


def process_count() -> int:
    """Return the number of processes that train together."""
    return int(_process_group().num_processes)


def training_device() -> torch.device:
    """Return the device that this process trains on."""
    device: torch.device = _process_group().device
    return device


def frozen_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of frozen weights beside autocast in a precision; trained weights stay in float32."""
    return FROZEN_PRECISION[resolved(precision, training_device())]


def in_main_process(make: Callable[[], None]) -> None:
    """Call a function in the main process alone; the others wait. Collective call."""
    if process_number() == 0:
        make()
    _process_group().wait_for_everyone()


def new_accelerator(precision: Precision = "no", **options: Any) -> Accelerator:
    """Return an accelerator for one phase, in the place of the one before; the process group stays.

    Args:
        precision: precision of autocast; `auto`: bf16, or float32 if the device has no instructions for it.
        options: further arguments of `Accelerator`.

    Raises:
        ValueError: the device cannot compute in this precision, or an option is wrong.
    """
    mixed, kind = resolved(precision, training_device()), _kind_of_group()
    if mixed == "fp16" and training_device().type == "cpu":  # accelerate would compute in float32 and call it fp16
        raise ValueError("fp16 needs a GPU, and this process trains on a CPU: take 'auto' or 'no'")
    AcceleratorState._reset_state()
    PartialState._shared_state["distributed_type"] = kind
    return Accelerator(mixed_precision=mixed, **options)


def release_network(accelerator: Accelerator) -> None:
    """Free the memory of an accelerator's network, to which the caller has no reference any more.

    `free_memory` collects garbage before it drops its own references. In half precision that is too early: accelerate
    keeps the network's first `forward` as an attribute of the network, a cycle that only a collection frees.
    """
    accelerator.free_memory()
    release_memory()


def _process_group() -> PartialState:
    """Return the state of the process group; the first call creates the group, before any accelerator does.

    Without a GPU it is one of CPUs: accelerate would else take every launched process for the only one.
    """
    cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    return PartialState(cpu=cpu, timeout=LONGEST_WAIT)


@cache
def _kind_of_group() -> DistributedType:
    """Return the kind of the process group as it was before any accelerator."""
    return _process_group().distributed_type
