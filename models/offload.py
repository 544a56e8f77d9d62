"""CPU offload for a small GPU: networks stay in main memory and are copied to the GPU one at a time.

The weights never change in play, so nothing is copied back: the copy on the GPU is dropped. The main memory is
page-locked, so that the GPU copies it by DMA.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class OffloadedNetwork:
    """Network in main memory that is copied to a device for use.

    Args:
        network: on the CPU, in the precision it computes in.
        device: the device it is copied to.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self.device = device
        self._tensors: list[tuple[Tensor, Tensor]] = []
        for tensor in (*network.parameters(), *network.buffers()):
            if device.type == "cuda":
                tensor.data = tensor.data.pin_memory(device)
            self._tensors.append((tensor, tensor.data))

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Keep the network on the device inside the block."""
        try:
            for tensor, original in self._tensors:
                tensor.data = original.to(self.device, non_blocking=True)
            yield
        finally:
            for tensor, original in self._tensors:
                tensor.data = original
