"""Precision of training: what `auto` stands for, and what a processor can compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from training.precision import has_bf16, has_instructions, resolved
from training.processes import new_accelerator, training_device

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "has"),
    [
        ({"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, True),
        ({"architecture": "arm64", "neon": True, "bf16": True}, True),
        ({"architecture": "arm64", "neon": True, "bf16": False}, False),
        ({"architecture": "riscv64"}, False),
    ],
)
def test_a_processor_has_bf16_by_its_instructions(capabilities: dict[str, Any], has: bool) -> None:
    assert has_instructions(capabilities) == has


def test_auto_is_what_the_device_has_and_others_stay() -> None:
    wanted = "bf16" if has_bf16(CPU) else "no"
    assert [resolved(each, CPU) for each in ("auto", "no", "fp16", "bf16")] == [wanted, "no", "fp16", "bf16"]


def test_accelerator_and_frozen_weights_agree_about_auto() -> None:
    assert new_accelerator("auto").mixed_precision == resolved("auto", training_device())
