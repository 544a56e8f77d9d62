"""Benchmark of the review page: a short run of it, and the table that judges the medians."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.review import LIMITS, measure, table_of


def test_a_median_over_its_limit_is_marked() -> None:
    times = {name: [1.0, limit + 1.0, limit + 1.0] for name, limit in LIMITS.items()} | {"a filter": [1.0, 2.0, 900.0]}
    Console(width=110, file=(shown := io.StringIO())).print(table_of(times, 20_000))
    rows = {cells[1].strip(): cells for line in shown.getvalue().splitlines() if len(cells := line.split("│")) > 3}
    assert [rows["a filter"][column].strip() for column in (2, 3, 5)] == ["2", "900", "held"]
    assert rows["a clip"][5].strip() == "over"


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None and not os.environ.get("CI"), reason="needs Chromium")
def test_a_short_run_measures_everything(tmp_path: Path) -> None:
    times = measure(tmp_path, clips=200, repeats=1)
    assert times.keys() == LIMITS.keys()
    assert all(0 < milliseconds < 20_000 for found in times.values() for milliseconds in found)
