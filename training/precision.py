"""Precision of training: what `auto` means on a device, the dtypes of frozen weights, attention in bf16 on a CPU.

torch computes in bf16 on any CPU. On one without instructions for it (AVX2, or AVX-512 of its first years) a product of
matrices then takes ten times as long as in float32. On one with them, torch's fused attention uses them less well than
two plain products with a softmax between: for heads of 48 numbers these take half the time, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

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


@contextmanager
def attention_for(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute attention in bf16 on a CPU by plain products of matrices; elsewhere as torch chooses.

    The weights of all pairs of positions are then in memory at once, those of each layer until the backward pass.
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
