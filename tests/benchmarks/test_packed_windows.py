"""Benchmark of packed windows: equal targets for both ways, and a run from end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.packed_windows import FIGURES, WAYS, measured_runs, recipe_of, table_of
from tests.support.networks.small_run import small_dataset, small_recipe
from training.recipes import ingredients_of, mini


def test_both_ways_have_as_many_targets_a_step_and_only_phase_b() -> None:
    nested, packed = (recipe_of(mini(), way, seed=2, steps=50, windows=3, targets=4.4) for way in WAYS)
    assert (nested.game.loop.batch_size, packed.game.loop.batch_size) == (13, 3)
    assert (nested.game.windows.packed, packed.game.windows.packed) == (False, True)
    assert (packed.shot.joint.steps, packed.game.loop.steps, packed.game.loop.seed) == (0, 50, 2)
    different = {
        key for key, value in ingredients_of(nested, "game").items() if ingredients_of(packed, "game").get(key) != value
    }
    assert different == {"loop", "windows"}


@pytest.mark.nightly
def test_it_trains_both_ways_and_resumes(tmp_path: Path) -> None:
    given = (str(small_dataset()), tmp_path, small_recipe(), None, 2, 1, range(1))
    runs = measured_runs(*given)
    assert [(run.way, run.figures.keys() >= set(FIGURES)) for run in runs] == [("nested", True), ("packed", True)]
    assert abs(runs[0].targets - runs[1].targets) <= 0.5
    assert table_of(runs, 2).row_count == 6
    results = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/game/result/trained.json")}
    assert measured_runs(*given) == runs
    assert {path: path.stat().st_mtime_ns for path in results} == results
