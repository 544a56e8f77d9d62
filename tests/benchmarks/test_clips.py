"""Benchmark of reading a large dataset, on a small one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.nightly
def test_it_measures_both_readers() -> None:
    command = [sys.executable, "-m", "benchmarks.clips", "--clips", "56"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"(open_dataset, clips|animegamer clips --csv) +([\d.]+) +([\d.]+) +(\d+)", done.stdout)
    assert len(rows) == 2
    assert all(float(cpu) > 0 and int(mebibytes) > 50 for _, cpu, _, mebibytes in rows)
