"""Accelerators of phases: the second of a process shards where the first did."""

from __future__ import annotations

import subprocess
import sys

import pytest

PHASES = """
from tests.support.networks.training_process import shard_on_cpus
from training.processes import new_accelerator

shard_on_cpus()
for precision in ("no", "bf16", "no"):
    accelerator = new_accelerator(precision)
    print(accelerator.mixed_precision, accelerator.is_fsdp2)
"""


@pytest.mark.nightly
def test_a_second_accelerator_shards_as_the_first() -> None:
    done = subprocess.run([sys.executable, "-c", PHASES], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["no True", "bf16 True", "no True"]
