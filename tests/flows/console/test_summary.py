"""Summary of a build: films that leave the shards are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.console.summary import print_summary
from pipeline.core.config import SelectionSettings, checked
from pipeline.core.progress import silent
from pipeline.core.stage import perform
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import films_in_shards
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from pipeline.stages.selection import Screen
from tests.support.datasets.built_dataset import SMALL, copy_of_built, small_film


def summary_of(film: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Build and publish as the command does, and return the summary."""
    request = BuildRequest(films=(film,), out=out, config=checked(SMALL, "test"))
    plan = make_plan(request, Workspace(request.out))
    for folder in map(plan.dataset.folder, plan.films):
        for stage in plan.stages:
            perform(stage, folder)
    for step in plan.publishing:
        step.run(plan.dataset, silent)
    assert print_summary(plan, []) == 0
    return capsys.readouterr().err


def test_a_film_that_leaves_the_shards_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first, data), second = copy_of_built(tmp_path), small_film(tmp_path / "second.mp4", frames=60)
    dataset = Workspace(str(data)).dataset
    (folder,) = dataset.folders()
    assert "not in the shards" not in summary_of(first, data, capsys)
    perform(Screen(SelectionSettings(min_light=255), PUBLISHED_EDGES), folder)  # as a build stopped at its captions
    said = summary_of(second, data, capsys)
    assert "not in the shards any more  film.mp4: its stages do not fit together any more; name it in a build" in said
    assert films_in_shards(dataset) == {dataset.folders()[1].film_id}
    assert "not in the shards" not in summary_of(first, data, capsys)
    assert films_in_shards(dataset) == {folder.film_id}, "and the second film, a duplicate, is out by its verdicts"
