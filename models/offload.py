"""Networks that wait in main memory and visit a small card one at a time.

The weights never change in play, so nothing is copied back: a network leaves the card by forgetting its copy there. The
memory it waits in is page-locked, so that the way to the card is a plain copy by the card.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Parked:
    """A network in main memory.

    Args:
        network: on the CPU, in the precision it computes in.
        device: the card it visits.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self.device = device
        self._tensors: list[tuple[Tensor, Tensor]] = []
        for tensor in (*network.parameters(), *network.buffers()):
            if device.type == "cuda":
                tensor.data = tensor.data.pin_memory(device)
            self._tensors.append((tensor, tensor.data))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Have the network on the card inside the block."""
        try:
            for tensor, waiting in self._tensors:
                tensor.data = waiting.to(self.device, non_blocking=True)
            yield
        finally:
            for tensor, waiting in self._tensors:
                tensor.data = waiting
