"""Precision, memory layout and compilation of the networks for play.

Half precision is what the networks were trained in on a GPU, and bfloat16 on a CPU that has fast instructions for it.
By CPU time of the packaged model on one Intel machine, with its instructions restricted:

                     AMX                 AVX512-BF16          AVX512
                     bfloat16  float32   bfloat16  float32   bfloat16  float32
    game model          47 ms       72         72        76        135        86
    guided step         30          43         47        40        101        47
    frames              64         396        205       405        522       428

Frames in float32 were measured before `arrange` gave them to oneDNN. In bfloat16, they have channels last in memory:
64 ms instead of 105 with AMX. With the AVX512-BF16 of AMD, all networks are faster in bfloat16
(docs/results/game-speed.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from diffusers import AutoencoderKLCogVideoX
from diffusers.models.autoencoders.autoencoder_kl_cogvideox import CogVideoXResnetBlock3D
from platformdirs import user_cache_path
from torch import Tensor, nn

from models.checkpoint import PLAYED, precision_of
from models.config import Component
from models.engine_options import EngineOptions
from models.game_model import GameModel, mistral_of
from models.shot_decoder import ShotDecoder
from pipeline.core.errors import UserError

Formats = Mapping[Component, torch.dtype]
_FAST = ("amx_bf16", "bf16", "sve_bf16")
"""Instructions of x86 and ARM that make bfloat16 faster than float32, by torch's names; not measured on ARM."""


def formats_of(options: EngineOptions, device: torch.device) -> Formats:
    """Return the floating-point format of each network that a game needs; `int8` changes weights only."""
    is_exact = options.preset.is_exact and device.type == "cpu"
    if (options.precision or ("float32" if is_exact else "half")) == "float32":
        return dict.fromkeys(PLAYED, torch.float32)
    if device.type != "cpu":
        return {part: precision_of(part, device) for part in PLAYED}
    able = torch.cpu.get_capabilities()
    parts: tuple[Component, ...] = PLAYED if is_fast_in_bf16(able) else ("autoencoder",)
    halved = parts if able.get("avx512_bf16") else ()  # never on ARM: play in bfloat16 is not measured there
    return {part: torch.bfloat16 if part in halved else torch.float32 for part in PLAYED}


def is_fast_in_bf16(able: Mapping[str, Any]) -> bool:
    """Return whether a processor computes faster in bfloat16 than in float32, by `torch.cpu.get_capabilities`.

    A joint step of `mini` takes 0.4 times the CPU time with the AVX512-BF16 of AMD, but 1.4 times with that of Intel.
    Without any of the instructions, a matrix product takes ten times as long.
    """
    is_zen = able.get("avx512_bf16", False) and "AMD" in able.get("cpu_name", "")
    return is_zen or any(able.get(name, False) for name in _FAST)


def precision_name(options: EngineOptions, device: torch.device) -> str:
    """Return the formats for people, as `bfloat16, float16`, with `int8` first for such weights."""
    formats = [str(each).removeprefix("torch.") for each in formats_of(options, device).values()]
    return ", ".join(dict.fromkeys(["int8"] * (options.precision == "int8") + formats))


def is_compiled(options: EngineOptions, device: torch.device) -> bool:
    """Return whether the networks are to be compiled on a device."""
    return options.preset.is_compiled and device.type == "cuda" if options.compile is None else options.compile


def store_as_int8(game_model: GameModel) -> None:
    """Store the weights of Mistral's layers in 8 bits, a scale per row; the products stay in half precision.

    Raises:
        UserError: torchao is not installed.
    """
    try:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    except ImportError as error:
        raise UserError("--precision int8 needs torchao: install it with `uv pip install torchao==0.18.0`") from error
    quantize_(mistral_of(game_model.language_model).model, Int8WeightOnlyConfig(version=2))


def arrange(autoencoder: AutoencoderKLCogVideoX, computed: torch.dtype) -> None:
    """Make the convolutions faster, if the autoencoder is on a CPU.

    In bfloat16, their channels come last in memory. In float32, oneDNN computes them: of its own accord, torch leaves a
    single small clip to a path that takes several times as long.
    """
    if autoencoder.device.type != "cpu":
        return
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    for module in autoencoder.modules():
        if isinstance(module, nn.Conv3d) and computed == torch.bfloat16:
            module.weight.data = module.weight.data.to(memory_format=torch.channels_last_3d)
        elif isinstance(module, nn.Conv3d) and computed == torch.float32 and has_onednn:
            module._conv_forward = partial(_by_onednn, module)  # type: ignore[method-assign]


def _by_onednn(convolution: nn.Conv3d, batch_BCTHW: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result_BCTHW: Tensor
    if torch.compiler.is_compiling():  # a compiler chooses by itself, and cannot see into this operation
        result_BCTHW = nn.Conv3d._conv_forward(convolution, batch_BCTHW, weight, bias)
    else:
        shape = convolution.padding, convolution.stride, convolution.dilation, convolution.groups
        result_BCTHW = torch.ops.aten.mkldnn_convolution(batch_BCTHW, weight, bias, *shape)
    return result_BCTHW


def check_compiler(device: torch.device) -> None:
    """Compile one addition for a device, and keep what is compiled in the user's cache folder.

    Raises:
        UserError: this machine lacks a part of the compiler.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache_path("animegamer") / "compiled"))
    try:
        torch.compile(lambda tensor: tensor + 1, fullgraph=True)(torch.zeros(1, device=device))
    except (RuntimeError, OSError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"this machine cannot compile networks ({reason}): install a C++ compiler such as g++, "
            "or play with --no-compile"
        ) from error


def compile_blocks(decoder: ShotDecoder, frame_decoder: nn.Module) -> None:
    """Compile the repeated blocks: all transformer blocks share one program, which compiles in seconds.

    Of a frame decoder, those of the autoencoder's; the tiny decoder has none.
    """
    for block in decoder.transformer_blocks:
        block.compile(fullgraph=True)
    for module in frame_decoder.get_submodule("decoder").modules():
        if isinstance(module, CogVideoXResnetBlock3D):
            module.compile()
