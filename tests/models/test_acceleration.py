"""Precision and compilation: what each speed and machine gets, and that the game stays the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLCogVideoX
from torch import Tensor
from torch.profiler import profile

from models.acceleration import arrange, formats_of, is_compiled, is_fast_in_bf16, precision_name
from models.checkpoint import Checkpoint
from models.config import MINI_SAMPLING, Sampling, full_config, mini_config
from models.engine import Engine
from models.engine_options import EngineOptions
from models.frames import decode_latents
from models.game import Game
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import brief_checkpoint, shake

CPU, GPU = torch.device("cpu"), torch.device("cuda")
OLD, COOPER, SAPPHIRE = {"avx512_f": True}, {"avx512_bf16": True}, {"avx512_bf16": True, "amx_bf16": True}
ZEN = {"avx512_bf16": True, "cpu_name": "AMD EPYC"}
STORY = ["Qiqi runs", "Qiqi sleeps"]


@pytest.mark.parametrize(
    ("able", "fast"),
    [
        ({"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, False),
        ({"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": True, "amx_bf16": True}, True),
        ({"architecture": "x86_64", "avx512_bf16": True, "amx_bf16": False, "cpu_name": "AMD EPYC"}, True),
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False, "cpu_name": "AMD EPYC"}, False),
        ({"architecture": "arm64", "neon": True, "bf16": True}, True),
        ({"architecture": "arm64", "neon": True, "bf16": False}, False),
        ({"architecture": "riscv64"}, False),
    ],
)
def test_a_processor_computes_in_bf16_where_that_is_faster(able: dict[str, Any], fast: bool) -> None:
    assert is_fast_in_bf16(able) is fast


@pytest.mark.parametrize(
    ("able", "options", "device", "name"),
    [
        (OLD, EngineOptions(), CPU, "float32"),
        (COOPER, EngineOptions(), CPU, "float32, bfloat16"),
        (ZEN, EngineOptions(), CPU, "bfloat16"),
        (SAPPHIRE, EngineOptions(), CPU, "bfloat16"),
        (SAPPHIRE, EngineOptions(speed="best"), CPU, "float32"),
        (SAPPHIRE, EngineOptions(speed="best", precision="half"), CPU, "bfloat16"),
        (SAPPHIRE, EngineOptions(precision="float32"), CPU, "float32"),
        (SAPPHIRE, EngineOptions(precision="int8"), CPU, "int8, bfloat16"),
        (OLD, EngineOptions(speed="best"), GPU, "bfloat16, float16"),
        (OLD, EngineOptions(precision="float32"), GPU, "float32"),
    ],
)
def test_half_precision_is_for_the_parts_that_a_machine_computes_faster(
    able: dict[str, Any], options: EngineOptions, device: torch.device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert precision_name(options, device) == name
    if able is COOPER:
        assert formats_of(options, device)["autoencoder"] == torch.bfloat16


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (EngineOptions(), Sampling()),
        (EngineOptions(speed="best"), Sampling()),
        (EngineOptions(speed="balanced"), Sampling(sampler="ode", steps=10)),
        (EngineOptions(speed="fast"), Sampling(sampler="ode", steps=5, guided=(200, 800))),
        (EngineOptions(speed="fast", steps=20, sampler="sde"), Sampling(sampler="sde", steps=20, guided=(200, 800))),
    ],
)
def test_a_speed_takes_fewer_steps_and_explicit_options_win(options: EngineOptions, expected: Sampling) -> None:
    assert options.sampling_of(full_config()) == expected


def test_a_checkpoint_of_few_steps_keeps_its_own_sampling() -> None:
    own = Sampling(steps=4, guidance=1.0)
    assert EngineOptions(speed="fast").sampling_of(mini_config().replaced(sampling=own)) == own
    assert EngineOptions(speed="balanced").sampling_of(mini_config()) == MINI_SAMPLING


def test_a_speed_compiles_on_a_gpu_only() -> None:
    fast = EngineOptions(speed="fast")
    assert [is_compiled(fast, GPU), is_compiled(fast, CPU), is_compiled(EngineOptions(), GPU)] == [True, False, False]
    assert is_compiled(EngineOptions(compile=True), CPU)
    assert not is_compiled(EngineOptions(speed="fast", compile=False), GPU)


def test_frames_in_bfloat16_with_channels_last_are_the_same_to_the_eye() -> None:
    checkpoint = Checkpoint.open(brief_checkpoint())
    exact, half = checkpoint.autoencoder(), checkpoint.autoencoder(dtype=torch.bfloat16)
    arrange(half, half.dtype)
    assert half.decoder.conv_in.conv.weight.is_contiguous(memory_format=torch.channels_last_3d)
    latents_BTCHW = torch.randn(1, 3, 16, 4, 6, generator=torch.Generator().manual_seed(1))
    frames, others = (decode_latents(each, latents_BTCHW).float() for each in (exact, half))
    assert 0 < (frames - others).square().mean() < 255**2 / 10**4  # 40 dB


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs torch with oneDNN")  # type: ignore[no-untyped-call]
def test_frames_in_float32_keep_clear_of_slow_convolutions_and_stay_the_same() -> None:
    checkpoint = Checkpoint.open(brief_checkpoint())
    plain, arranged = checkpoint.autoencoder(), checkpoint.autoencoder()
    arrange(arranged, arranged.dtype)
    latents_BTCHW = torch.randn(1, 3, 16, 4, 6, generator=torch.Generator().manual_seed(1))
    (frames, slow), (others, fast) = _decoded(plain, latents_BTCHW), _decoded(arranged, latents_BTCHW)
    assert (frames - others).abs().max() <= 1
    assert "aten::slow_conv3d" in slow  # else torch has changed, and `arrange` may leave float32 alone
    assert "aten::slow_conv3d" not in fast


def _decoded(autoencoder: AutoencoderKLCogVideoX, latents_BTCHW: Tensor) -> tuple[Tensor, set[str]]:
    """Return the frames, and the names of torch's operations."""
    with profile() as profiled:
        frames_BTHWC = decode_latents(autoencoder, latents_BTCHW)
    return frames_BTHWC.float(), {event.key for event in profiled.key_averages()}


def test_eight_bit_weights_are_refused_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(UserError, match="--precision int8 needs torchao: install it"):
        Engine.load(brief_checkpoint(), EngineOptions("cpu", precision="int8"))
    with pytest.raises(UserError, match="--offload does not go with --precision int8"):
        EngineOptions("cpu", offload=True, precision="int8")


@pytest.mark.slow
def test_eight_bit_weights_play_nearly_the_same_turn() -> None:
    pytest.importorskip("torchao")
    engines = [Engine.load(brief_checkpoint(), EngineOptions("cpu", 2, precision=each)) for each in ("int8", "half")]
    weights = [each.game_model.language_model.model.layers[0].mlp.up_proj.weight for each in engines]
    assert [type(each).__name__ for each in weights] == ["Int8Tensor", "Parameter"]
    turns = [[*Game(engine).play(STORY)][-1] for engine in engines]
    assert turns[0].frames_THWC.std() > 1
    error = (turns[0].shot_tokens_LD - turns[1].shot_tokens_LD).norm() / turns[1].shot_tokens_LD.norm()
    assert 0 < error < 0.05


@pytest.mark.nightly
def test_a_machine_without_a_compiler_is_told_so_before_anything_is_loaded(tmp_path: Path) -> None:
    code = (
        "from models.engine import Engine; from models.engine_options import EngineOptions;"
        "Engine.load('there-is-no-checkpoint', EngineOptions('cpu', compile=True))"
    )
    environment = {"CXX": "/there/is/no/compiler", "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (
        "UserError: this machine cannot compile networks (InvalidCxxCompiler: No working C++ compiler" in result.stderr
    )
    assert "or play with --no-compile" in result.stderr


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs g++")
def test_compiled_blocks_play_the_same_turns() -> None:
    plain, compiled = (
        Engine.load(brief_checkpoint(), EngineOptions("cpu", 2, precision="float32", compile=each))
        for each in (False, True)
    )
    for engine in (plain, compiled):
        shake(engine.game_model)
        shake(engine.shot_decoder.time_embedding.motion, by=0.3)
    assert compiled.shot_decoder.transformer_blocks[0]._compiled_call_impl is not None
    for turn, expected in zip(Game(compiled).play(STORY), Game(plain).play(STORY), strict=True):
        assert np.abs(turn.frames_THWC.astype(int) - expected.frames_THWC).mean() < 0.5
        assert turn.state == expected.state
