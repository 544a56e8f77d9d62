"""The benchmark of the game: it runs from end to end at small sizes, and counts the work of a step right."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from benchmarks.model import random_config, step_tflop, table_of


@pytest.mark.slow
def test_the_work_of_a_full_step_is_what_arithmetic_says() -> None:
    tokens, width, layers = 226 + 5 * 30 * 45, 1920, 30
    projections = 12 * width**2 * 2 * tokens  # q, k, v, out, and a feed-forward of four widths there and back
    attention = 2 * tokens**2 * width * 2
    guided = 2 * layers * (projections + attention) / 1e12
    shape = {"num_attention_heads": 30, "attention_head_dim": 64, "num_layers": layers}
    assert step_tflop(random_config("full"), shape) == pytest.approx(guided, rel=0.01)


def test_the_share_of_the_peak_is_of_the_card_at_hand() -> None:
    seconds = {"game model": 1.0, "denoising": 6.0, "frames": 1.0}
    results = {"plain": {"seconds": seconds, "main_gib": 1.0, "card_gib": 20.0}}
    cells = [
        next(iter(table_of(results, 59.34, 50, "full", device).columns[5].cells))
        for device in ("NVIDIA H200", "an unknown one")
    ]
    assert cells == ["494 (50% of peak)", "494"]


@pytest.mark.nightly
def test_it_compares_two_sizes() -> None:
    command = [sys.executable, "-m", "benchmarks.model", "--size", "tiny", "mini", "--steps", "2", "--turns", "1"]
    result = subprocess.run([*command, "--way", "plain"], capture_output=True, text=True, check=True)
    assert result.stdout.count("plain") == 2
    assert re.search(r"a turn of mini takes \d+\.\d\d times as long as one of tiny", result.stdout)
