"""Processes that train together: their accelerators, one for each phase, and the precision of their devices.

accelerate keeps the precision of the first accelerator of a process and rejects another one, but our phases may differ
in precision. It also notes `FSDP` as the kind of the process group, and an accelerator that finds this note has no FSDP
plugin. `new_accelerator` first removes both notes.

torch computes in bf16 on any CPU, and `auto` takes it where that is faster. There, attention by plain matrix products
is faster than by torch's fused kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as distributed
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, parse_flag_from_env, release_memory
from torch.distributed import ProcessGroup
from torch.nn.attention import SDPBackend, sdpa_kernel

from models.acceleration import is_fast_in_bf16
from training.config import Precision

FROZEN_PRECISION: dict[Precision, torch.dtype] = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""Dtype of frozen weights by precision. Trained weights stay in float32 and are cast when they are used."""
LONGEST_WAIT = timedelta(days=1)
"""Maximum time that a process waits for another one; the default of 10 minutes is too short for downloads."""


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


@cache
def writing_group() -> ProcessGroup | None:
    """Return a group in which the processes can talk beside training; None for a single one. First call collective."""
    _process_group()
    return distributed.new_group(backend="gloo", timeout=LONGEST_WAIT) if distributed.is_initialized() else None


@contextmanager
def in_turn() -> Iterator[None]:
    """Let the processes of a machine run the block one after another. Collective call; so is the end of the block.

    Weights are read into main memory before they move to a GPU: eight processes at once would take it eight times.
    """
    group, own = _process_group(), _process_group().local_process_index
    others = int(os.environ.get("LOCAL_WORLD_SIZE", group.num_processes)) - 1
    for _ in range(own):
        group.wait_for_everyone()
    yield
    for _ in range(others - own):
        group.wait_for_everyone()


def in_main_process(make: Callable[[], None]) -> None:
    """Call a function in the main process alone; the others wait. Collective call."""
    if process_number() == 0:
        make()
    _process_group().wait_for_everyone()


def is_sharded() -> bool:
    """Return whether `accelerate launch` started this process with sharded weights (FSDP2)."""
    return bool(parse_flag_from_env("ACCELERATE_USE_FSDP"))


def new_accelerator(precision: Precision = "no", **options: Any) -> Accelerator:
    """Return an accelerator for one phase. It replaces the previous one, but the process group stays.

    Args:
        precision: precision of autocast; `auto` is bf16 if it is faster on the device, otherwise float32.
        options: further arguments of `Accelerator`.

    Raises:
        ValueError: the device cannot compute in this precision, or an option is wrong.
    """
    mixed, kind = resolved(precision, training_device()), _kind_of_group()
    if mixed == "fp16" and is_sharded():
        raise ValueError("fp16 is not supported with FSDP2, which shards the gradients: take 'bf16', or train with DDP")
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


def frozen_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of frozen weights when autocast has a precision; trained weights stay in float32."""
    return FROZEN_PRECISION[resolved(precision, training_device())]


def resolved(precision: Precision, device: torch.device) -> Precision:
    """Return the precision that `auto` stands for on a device, or any other unchanged."""
    return precision if precision != "auto" else "bf16" if has_bf16(device) else "no"


@cache
def has_bf16(device: torch.device) -> bool:
    """Return whether a device computes faster in bf16 than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type != "cpu" or is_fast_in_bf16(torch.cpu.get_capabilities())


@contextmanager
def attention_for(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute attention in bf16 on a CPU by plain matrix products; otherwise torch chooses.

    Plain products keep the weights of all pairs of positions in memory, for each layer until the backward pass.
    """
    if precision != "bf16" or device.type != "cpu":
        yield
        return
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # type: ignore[no-untyped-call]
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)  # of the CPU too, else it computes in float32
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def _process_group() -> PartialState:
    """Return the state of the process group; the first call creates the group, before any accelerator does.

    Without a GPU, the group is made for CPUs. Otherwise accelerate would treat every launched process as the only one.
    """
    cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    return PartialState(cpu=cpu, timeout=LONGEST_WAIT)


@cache
def _kind_of_group() -> DistributedType:
    """Return the kind of the process group as it was before any accelerator."""
    return _process_group().distributed_type
