"""Accelerators of phases, what `auto` stands for, and what a processor can compute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import profile

from training.config import Precision
from training.processes import attention_for

CPU = torch.device("cpu")
PHASES = """
from tests.support.networks.training_process import shard_on_cpus
from training.processes import new_accelerator

shard_on_cpus()
for precision in ("no", "bf16", "no"):
    accelerator = new_accelerator(precision)
    print(accelerator.mixed_precision, accelerator.is_fsdp2)
"""


def attended(precision: Precision, queries: Tensor, keys: Tensor, **options: Any) -> tuple[list[Tensor], set[str]]:
    """Return attention and its gradient, and the names of the operations that computed them."""
    with attention_for(precision, CPU), profile() as seen:
        found = scaled_dot_product_attention(queries, keys, keys, **options)
        gradient = torch.autograd.grad(found.square().sum(), keys)[0]
    return [found, gradient], {event.key for event in seen.key_averages()}


@pytest.mark.parametrize(
    "options",
    [
        {"attn_mask": torch.ones(9, 9, dtype=torch.bool).tril()},
        {"attn_mask": torch.full((9, 9), -torch.inf).triu(1), "scale": 0.5},
        {"is_causal": True, "enable_gqa": True},
    ],
)
def test_gradients_of_attention_in_bf16_on_a_cpu_are_computed_by_products(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    heads = 2 if options.get("enable_gqa") else 4
    queries_BHLD, keys_BHLD = torch.randn(2, 4, 9, 16), torch.randn(2, heads, 9, 16, requires_grad=True)
    wanted, fused = attended("no", queries_BHLD, keys_BHLD, **options)
    found, plain = attended("bf16", queries_BHLD, keys_BHLD, **options)
    for ours, torchs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, torchs)
    assert [any("flash" in name for name in names) for names in (fused, plain)] == [True, False]
    assert "aten::bmm" in plain
    halves = [each.bfloat16() for each in (queries_BHLD, keys_BHLD)]
    for ours, torchs in zip(attended("bf16", *halves, **options)[0], wanted, strict=True):
        assert torch.cosine_similarity(ours.float().flatten(), torchs.flatten(), dim=0) > 0.999
    assert attended("no", queries_BHLD, keys_BHLD, **options)[1] == fused


@pytest.mark.nightly
def test_a_second_accelerator_shards_as_the_first() -> None:
    done = subprocess.run([sys.executable, "-c", PHASES], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["no True", "bf16 True", "no True"]


TURNS = """
import sys, time
from training.processes import in_turn, process_number

with in_turn():
    for word in ("enters", "leaves"):
        with open(sys.argv[1], "a") as file:
            file.write(f"{process_number()} {word}\\n")
        time.sleep(0.3)
"""


@pytest.mark.slow
def test_processes_of_a_machine_take_turns(tmp_path: Path) -> None:
    (tmp_path / "turns.py").write_text(TURNS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launcher, str(tmp_path / "turns.py"), str(tmp_path / "order")],
        capture_output=True, text=True, timeout=250, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "ACCELERATE_USE_CPU": "true"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "order").read_text().splitlines() == ["0 enters", "0 leaves", "1 enters", "1 leaves"]
