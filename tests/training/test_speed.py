"""Speed figures of real steps: MFU by counted operations, waiting, tokens; none of them where they are unknown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch import Tensor

from tests.training.test_trainer import Line, Rows, Sum, loop, same, trained
from training.processes import new_accelerator
from training.speed import SpeedMeter, peak_tflops_of
from training.trainer import Trainer


def late(items: int) -> Iterator[int]:
    for item in range(items):
        time.sleep(0.02)
        yield item


def test_operations_of_a_known_network_give_the_mfu() -> None:
    network, inputs = torch.nn.Linear(64, 32), torch.randn(8, 64, requires_grad=True)
    meter = SpeedMeter(torch.device("cpu"), 2, peak_tflops=1e-3)
    steps = []
    begun, passed = time.perf_counter(), list[float]()
    for _ in meter.waiting(late(3)):
        if meter.misses_operations:
            with meter.counting(units=8):
                network(inputs).sum().backward()
                time.sleep(0.2)  # is not part of the step
        network(inputs).sum().backward()
        steps.append(meter.figures(examples=4, units=8))
        passed.append(time.perf_counter() - begun)
    assert steps[0]["step_seconds"] < passed[0] - 0.2
    operations = 3 * 2 * 8 * 64 * 32  # forward, and backward for the weights and for the inputs
    for found in steps:
        assert found["mfu"] == pytest.approx(operations / found["step_seconds"] / 1e9)
        assert found["examples_a_second"] == pytest.approx(8 / found["step_seconds"])
        assert found["tokens_a_second"] == pytest.approx(16 / found["step_seconds"])
        assert 0.02 / found["step_seconds"] <= found["waiting"] < 1


def test_an_unknown_card_has_no_mfu_and_equal_units_no_tokens() -> None:
    meter = SpeedMeter(torch.device("cpu"), 1, peak_tflops=None)
    for _ in meter.waiting(late(1)):
        assert not meter.misses_operations
        assert sorted(meter.figures(4, 4)) == ["examples_a_second", "step_seconds", "waiting"]


def test_a_cpu_has_no_peak() -> None:
    assert peak_tflops_of(Accelerator(cpu=True)) is None


@pytest.mark.parametrize(
    ("card", "precision", "kind", "peak"),
    [
        ("NVIDIA H100 PCIe", "bf16", DistributedType.NO, 756),
        ("NVIDIA H100 NVL", "fp16", DistributedType.MULTI_GPU, 835),
        ("NVIDIA GH200 480GB", "bf16", DistributedType.NO, 989),
        ("NVIDIA B200", "bf16", DistributedType.NO, 2250),
        ("NVIDIA B200", "bf16", DistributedType.FSDP, None),
        ("NVIDIA B200", "no", DistributedType.NO, None),
        ("NVIDIA X9", "bf16", DistributedType.NO, None),
    ],
)
def test_the_peak_is_the_cards_in_half_precision_with_whole_weights(
    card: str, precision: str, kind: DistributedType, peak: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: card)
    there: Any = SimpleNamespace(device=torch.device("cuda"), mixed_precision=precision, distributed_type=kind)
    assert peak_tflops_of(there) == peak


def test_operations_are_counted_on_one_example_and_change_no_weight(tmp_path: Path) -> None:
    rows: list[int] = []

    class Watched(Line):
        def forward(self, batch: Rows) -> dict[str, Tensor]:
            rows.append(len(batch.rows_BD))
            return super().forward(batch)

    trainer = Trainer(Sum(Watched()), loop(), tmp_path / "counted", new_accelerator())
    trainer.speed = SpeedMeter(torch.device("cpu"), 1, peak_tflops=1.0)
    assert same(load_file(trainer.run() / "line.safetensors"), trained(tmp_path / "plain", loop()))
    assert rows == [1] + [4] * 20
    assert not trainer.speed.misses_operations
