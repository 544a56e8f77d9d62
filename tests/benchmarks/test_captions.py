"""Caption benchmark, run as it is: what the client uses for many clips."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.captions import measure


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_memory_at_the_5000th_clip_is_that_at_the_500th(tmp_path: Path) -> None:
    use = measure(tmp_path, 5000, slots=16, seconds=0)
    assert use.tallies[0].requests == 10_000
    assert use.last_mib < 1.04 * use.early_mib  # 45 MB more if each clip left 10 kB
