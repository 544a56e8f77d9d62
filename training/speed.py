"""Speed of training: seconds a step, examples and units a second, the share spent waiting for examples, memory, MFU.

MFU (model FLOPs utilization) is the share of the card's peak that the network's operations take:

    MFU = F / (t P)

with F the operations of forward and backward pass on this process's share of the batch, t the seconds of the step and P
the card's dense half-precision peak. F is counted in the first step and scaled by the size of the examples, so it is
approximate where they differ in length; recomputed activations count. It is left out on a CPU and on unknown cards.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

T = TypeVar("T")

PEAK_TFLOPS: Mapping[str, float] = {
    "H200": 989,
    "H100 PCIe": 756,
    "H100 NVL": 835,
    "H100": 989,
    "A100": 312,
    "L40S": 362,
    "A6000": 155,
    "A10": 125,
    "RTX 4090": 165,
    "RTX 3090": 71,
}
"""Dense half-precision peak with float32 accumulation, by a part of the card's name, from the makers' data sheets."""


def peak_tflops_of(name: str) -> float | None:
    """Return the peak of a card by its name; None if it is unknown."""
    return next((peak for part, peak in PEAK_TFLOPS.items() if part in name), None)


class SpeedMeter:
    """Measurement of the steps of one process.

    Args:
        device: device of the process.
        processes: number of processes, each with an equal share of the batch.
        peak_tflops: peak of the card; by default that of the device.
    """

    def __init__(self, device: torch.device, processes: int, peak_tflops: float | None = None) -> None:
        self._device, self._processes = device, processes
        on_gpu = device.type == "cuda"
        self._peak_tflops = peak_tflops_of(torch.cuda.get_device_name(device)) if on_gpu else peak_tflops
        self._operations_a_unit: float | None = None
        self._counter: FlopCounterMode | None = None
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

    def counted(self) -> AbstractContextManager[object]:
        """Count the operations of the block if MFU can be given and they are not known yet."""
        if self._peak_tflops is None or self._operations_a_unit is not None:
            return nullcontext()
        self._counter = FlopCounterMode(display=False)
        return self._counter

    def figures(self, examples: int, units: int) -> dict[str, float]:
        """Return the figures of the step that ends now; it began when its examples were asked for.

        Args:
            examples: examples of this process.
            units: their size, such as their tokens.
        """
        if self._counter is not None:
            self._operations_a_unit, self._counter = self._counter.get_total_flops() / units, None
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
