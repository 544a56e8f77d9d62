"""Motion levels: the edges in use, edges fitted to a dataset, and the representative value of each level."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import UserError
from pipeline.core.measurements import Motion
from pipeline.core.records import Verdict
from pipeline.core.store import Dataset, FilmFolder, StoreError
from pipeline.stages.motion_levels import (
    PUBLISHED_EDGES,
    PUBLISHED_VALUES,
    calibrate,
    fit_edges,
    level_of,
    level_values,
)
from tests.support import records
from tests.support.datasets.made_dataset import make_dataset


def test_an_edge_belongs_to_the_level_below() -> None:
    assert [level_of(scope, PUBLISHED_EDGES) for scope in (0, 1.5, 1.500001, 27.5, 27.500001, 1e9)] == [
        1,
        1,
        2,
        4,
        5,
        5,
    ]


@pytest.mark.parametrize("scope", [math.nan, math.inf, -0.1])
def test_invalid_scopes_are_refused(scope: float) -> None:
    for use in (
        lambda: level_of(scope, PUBLISHED_EDGES),
        lambda: fit_edges([1, 2, 3, 4, 5, scope], "quantiles"),
        lambda: level_values([1, scope], PUBLISHED_EDGES),
    ):
        with pytest.raises(ValueError, match="finite number of pixels"):
            use()


def test_quantiles_fill_the_levels_equally() -> None:
    scopes = np.random.default_rng(0).lognormal(1, 1, 1000).tolist()
    edges = fit_edges(scopes, "quantiles")
    assert np.bincount([level_of(scope, edges) for scope in scopes]).tolist() == [0, 200, 200, 200, 200, 200]


@pytest.mark.parametrize(
    ("scopes", "counts"),
    [
        ([0.0] * 60 + [float(n) for n in range(1, 41)], [60, 10, 10, 10, 10]),  # half of the clips are still
        ([1.0, 2.0, 3.0, 4.0, 5.0], [1, 1, 1, 1, 1]),
        ([9.0] * 50 + [1.0, 2.0, 3.0, 4.0], [1, 1, 1, 1, 50]),
        ([1.0, 2.0, 3.0, 4.0] + [9.0] * 50 + [10.0], [2, 1, 1, 50, 1]),
        ([5.0 + n * 1e-6 for n in range(10)], [2, 2, 2, 2, 2]),
    ],
)
def test_ties_share_a_level_and_edges_still_rise(scopes: list[float], counts: list[int]) -> None:
    edges = fit_edges(scopes, "quantiles")
    assert list(edges) == sorted(set(edges))
    assert np.bincount([level_of(scope, edges) for scope in scopes], minlength=6).tolist()[1:] == counts


def test_four_different_scopes_are_too_few_for_five_levels() -> None:
    with pytest.raises(UserError, match="to 4 distinct scopes"):
        fit_edges([1, 1, 2, 3, 4, 4], "quantiles")


def test_the_value_of_a_level_is_the_median_of_its_clips_or_the_published_one() -> None:
    assert level_values([0, 1, 1.4, 3, 30, 50], PUBLISHED_EDGES) == (1, 3, 10, 15, 40)
    assert level_values([], PUBLISHED_EDGES) == PUBLISHED_VALUES
    assert level_values([], (0.1, 0.2, 0.4, 0.8)) == pytest.approx((0.05, 0.15, 0.3, 0.6, 40))
    assert level_values([45, 90], (50, 60, 80, 100)) == (45, 55, 70, 90, 110)


def remeasure(dataset: Dataset, film: int, scopes: list[float], flow_model: str = "dis@0.5") -> list[str]:
    """Give a film these motion scopes, keep all of its clips and return their ids."""
    folder = dataset.folders()[film]
    rows = [row.clip_id for row in folder.read("motion", Motion)][: len(scopes)]
    folder.write(
        "motion",
        [records.motion(row, scope, flow_model=flow_model) for row, scope in zip(rows, scopes, strict=True)],
    )
    keep_only(dataset, film, rows)
    return rows


def keep_only(dataset: Dataset, film: int, kept: list[str]) -> None:
    folder = dataset.folders()[film]
    verdicts = folder.read("verdicts", Verdict)
    folder.write("verdicts", [v.model_copy(update={"keep": v.clip_id in kept, "reasons": ()}) for v in verdicts])


def test_calibration_counts_the_kept_clips_of_all_films(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    remeasure(dataset, 0, [float(n) for n in range(10)])
    second = remeasure(dataset, 1, [10.0, 11.0, 500.0])
    keep_only(dataset, 1, second[:2])
    found = calibrate(dataset, "quantiles")
    assert (found.flow_model, sum(found.counts), found.counts) == ("dis@0.5", 12, (2, 2, 3, 2, 3))
    assert found.edges == (1.5, 3.5, 6.5, 8.5)
    assert found.values == (0.5, 2.5, 5, 7.5, 10)
    assert calibrate(dataset, "published").edges == PUBLISHED_EDGES
    assert calibrate(dataset, "published").counts == (2, 5, 5, 0, 0)


def test_calibration_takes_every_clip_of_a_film_without_verdicts(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1)
    folder = dataset.folders()[0]
    folder.table_path("verdicts").unlink()
    assert sum(calibrate(dataset, "published").counts) == len(folder.read("motion", Motion))


def test_calibration_refuses_two_optical_flow_models_and_no_measurement(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "two")
    remeasure(dataset, 0, [1.0, 2.0])
    remeasure(dataset, 1, [1.0, 2.0], "memflow:1a2b3c4d@1")
    with pytest.raises(
        StoreError, match=r"measured with dis@0\.5, .* and memflow:1a2b3c4d@1, background below 0\.2 px"
    ):
        calibrate(dataset, "quantiles")
    with pytest.raises(StoreError, match="no clip has its motion measured"):
        calibrate(Dataset(tmp_path / "none"), "quantiles")


def measured_above(folder: FilmFolder, background_px: float) -> None:
    """Note in the film's record that its motion was measured above this background."""
    record = folder.stage_record("motion")
    assert record
    ingredients = record.ingredients | {"motion": {"background_px": background_px}}
    folder.save_stage_record(record.model_copy(update={"ingredients": ingredients}))


def test_calibration_is_for_the_background_that_was_measured_with_not_the_last_planned(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    first, second = dataset.folders()
    measured_above(first, 2.0)
    with pytest.raises(StoreError, match=r"background below 0\.2 px and dis, background below 2 px, .*background_px"):
        calibrate(dataset, "published")
    measured_above(second, 2.0)
    planned = dataset.record.config | {"motion": {"background_px": 3.0}}
    stored = calibrate(dataset, "published").stored_in(dataset.record.model_copy(update={"config": planned}))
    assert stored.calibration
    assert stored.calibration.background_px == 2.0
