"""Precision of training: what `auto` means on a device, and the dtypes of frozen weights.

torch computes in bf16 on any CPU. On one without instructions for it (AVX2, or AVX-512 of its first years) a product of
matrices then takes ten times as long as in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from training.config import Precision

FROZEN_PRECISION: dict[Precision, torch.dtype] = {
    "no": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
"""Dtype of frozen weights by precision; trained weights stay in float32 and are cast where they are used."""
_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""Capabilities of x86 and ARM processors, by torch's names."""


def resolved(precision: Precision, device: torch.device) -> Precision:
    """Return the precision that `auto` stands for on a device, or any other unchanged."""
    return precision if precision != "auto" else "bf16" if has_bf16(device) else "no"


@cache
def has_bf16(device: torch.device) -> bool:
    """Return whether a device has instructions for bf16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type != "cpu" or has_instructions(torch.cpu.get_capabilities())


def has_instructions(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a processor has instructions for bf16, by `torch.cpu.get_capabilities`."""
    return any(capabilities.get(name, False) for name in _INSTRUCTIONS)
