"""Compiled blocks of the networks in training: no graph breaks, equal losses, and a machine without a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pipeline.core.errors import UserError
from training.compiling import check_compiler, compile_blocks, compiles
from training.config import LoopSettings
from training.recipes import PHASES, PhaseName, full, loop_of, tiny
from training.trial import batch_of, network_of


def loss_and_gradients(network: nn.Module, phase: PhaseName) -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(0)
    network.zero_grad()
    loss = network(batch_of(phase, tiny(), 1))["loss"].sum()
    loss.backward()
    return loss.detach(), [each.grad.clone() for each in network.parameters() if each.grad is not None]


@pytest.mark.parametrize(
    ("phase", "backend"),
    [
        ("game", "eager"),
        *(pytest.param(phase, "eager", marks=pytest.mark.slow) for phase in PHASES if phase != "game"),
        pytest.param("joint", "inductor", marks=pytest.mark.nightly),
    ],
)
def test_blocks_compile_without_graph_breaks_to_the_same_loss_and_gradients(phase: PhaseName, backend: str) -> None:
    torch.manual_seed(0)
    network = network_of(phase, tiny(), "cpu")
    expected, gradients = loss_and_gradients(network, phase)
    compile_blocks(network, network.units, varied=phase == "game", backend=backend)
    compiled = [type(each).__name__ for each in network.modules() if each._compiled_call_impl is not None]
    assert set(compiled) <= {"CogVideoXBlock", "ShotEncoder", "MistralDecoderLayer"}
    assert len(compiled) >= 2
    found, others = loss_and_gradients(network, phase)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(loss_and_gradients(network, phase)[0], expected)


def test_nothing_is_compiled_on_a_cpu_and_a_missing_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, plain = loop_of(full(), "joint"), LoopSettings(steps=1, batch_size=1, learning_rate=1.0)
    assert not compiles(compiled, torch.device("cpu"))
    check_compiler("joint", compiled, torch.device("cpu"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    check_compiler("joint", plain, torch.device("cuda"))
    with pytest.raises(UserError, match=r"joint: .* without a C compiler .*: install it, or set compile = false"):
        check_compiler("joint", compiled, torch.device("cuda"))
