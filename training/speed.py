"""Speed of training: seconds a step, examples and units a second, the share spent waiting for examples, memory, MFU.

MFU (model FLOPs utilization) is the share of the card's peak that the network's operations take:

    MFU = F / (t P)

with F the operations of forward and backward pass on this process's share of the batch, t the seconds of the step and P
the card's dense half-precision peak. F includes recomputed activations. It is counted in a pass before the first step
and scaled by the size of the examples, so it is approximate for examples of different lengths. In `distill`, F is of
the second step, which usually leaves the student out. MFU is left out on a CPU, on unknown cards, in float32 and with
sharded weights.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch.utils.flop_counter import FlopCounterMode

T = TypeVar("T")

PEAK_TFLOPS: Mapping[str, float] = {
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    "NVIDIA A100-SXM4-40GB": 312,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA H100 PCIe": 756,
    "NVIDIA H100 NVL": 835,
    "NVIDIA H100 80GB HBM3": 989,
    "NVIDIA GH200 480GB": 989,
    "NVIDIA H200": 989,
    "NVIDIA B200": 2250,
    "NVIDIA L40S": 362,
    "NVIDIA GeForce RTX 4090": 165,
    "NVIDIA GeForce RTX 3090": 71,
}
"""Dense half-precision peak by the name of the card, from NVIDIA's data sheets."""


def peak_tflops_of(accelerator: Accelerator) -> float | None:
    """Return the peak of the accelerator's card, or None without an MFU."""
    is_sharded = accelerator.distributed_type == DistributedType.FSDP
    if accelerator.device.type != "cuda" or accelerator.mixed_precision == "no" or is_sharded:
        return None
    return PEAK_TFLOPS.get(torch.cuda.get_device_name(accelerator.device))


class SpeedMeter:
    """Measurement of the steps of one process.

    Args:
        processes: number of processes, each with an equal share of the batch.
        peak_tflops: peak of the card; None leaves MFU out.
    """

    def __init__(self, device: torch.device, processes: int, peak_tflops: float | None) -> None:
        self._device, self._processes, self._peak_tflops = device, processes, peak_tflops
        self._operations_a_unit: float | None = None
        self._waited = 0.0
        self._started = time.perf_counter()

    def waiting(self, examples: Iterable[T]) -> Iterator[T]:
        """Yield from an iterable, and time how long each item takes."""
        iterator = iter(examples)
        while True:
            started = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._started, self._waited = started, time.perf_counter() - started
            yield item

    @property
    def misses_operations(self) -> bool:
        """Return whether MFU needs the operations of a step, and they are not known yet."""
        return self._peak_tflops is not None and self._operations_a_unit is None

    @contextmanager
    def counting(self, units: float) -> Iterator[None]:
        """Count the operations of the block, a pass over examples of this size; it is no part of the step."""
        started = time.perf_counter()
        with FlopCounterMode(display=False) as counter:
            yield
        self._operations_a_unit = counter.get_total_flops() / units
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self._started += time.perf_counter() - started

    def figures(self, examples: int, units: float) -> dict[str, float]:
        """Return the figures of the step that ends now; it began when its examples were asked for.

        Args:
            units: size of a process's examples, such as their tokens, on average over the processes.
        """
        seconds = time.perf_counter() - self._started
        found = {
            "step_seconds": seconds,
            "examples_a_second": self._processes * examples / seconds,
            "waiting": self._waited / seconds,
        }
        if units != examples:
            found["tokens_a_second"] = self._processes * units / seconds
        if self._device.type == "cuda":
            found["peak_gb"] = torch.cuda.max_memory_allocated(self._device) / 1e9
        if self._peak_tflops is not None and self._operations_a_unit is not None:
            found["mfu"] = self._operations_a_unit * units / seconds / (self._peak_tflops * 1e12)
        return found
