"""Compiled blocks: kernels by torch's inductor for each block of a network in training.

Blocks are compiled one by one, so all blocks of a class share one compilation of some seconds. The whole network would
take minutes. A block is compiled as one graph, and a break is an error. Rounding differs from uncompiled blocks, so
`compile` is an ingredient of a run. On a CPU, and in validation, nothing is compiled.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection

import torch
from torch import nn
from torch.utils._triton import has_triton

from pipeline.core.errors import UserError
from training.config import LoopSettings

_COMPILERS = ("gcc", "clang", "cc")
"""Compilers of C that Triton calls."""
_MOST_PROGRAMS = 32
"""Most programs of a block. Distillation needs 10, and more with its adversarial term."""


def compiles(loop: LoopSettings, device: torch.device) -> bool:
    """Return whether blocks are compiled: if the recipe says so, on a GPU."""
    return loop.compile and device.type == "cuda"


def check_compiler(phase: str, loop: LoopSettings, device: torch.device) -> None:
    """Raise a UserError if blocks are to be compiled, but Triton or a compiler of C is missing."""
    if not compiles(loop, device):
        return
    found = any(map(shutil.which, (os.environ.get("CC", ""), *_COMPILERS)))
    missing = "a C compiler (gcc or clang)" if not found else "Triton" if not has_triton() else ""
    if missing:
        raise UserError(
            f"{phase}: its blocks cannot be compiled without {missing}: install it, or set compile = false in the "
            "recipe, which takes half as long again and a third more memory"
        )


def compile_blocks(network: nn.Module, units: Collection[str], *, varied: bool, backend: str = "inductor") -> None:
    """Compile the innermost units of a network, in place; parameters keep their names.

    Args:
        units: names of classes of modules.
        varied: whether inputs differ in size: compile once for all sizes, not for each.
        backend: of torch's compiler.
    """
    torch._dynamo.config.recompile_limit = _MOST_PROGRAMS  # one more is an error
    for module in network.modules():
        inside = {type(each).__name__ for each in module.modules() if each is not module}
        if type(module).__name__ in units and not inside & set(units):
            module.compile(fullgraph=True, dynamic=varied, backend=backend)
