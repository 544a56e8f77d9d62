"""Summary of a build: films that leave the shards, and those without a clip, are named."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from flows.console.summary import film_table, print_summary
from pipeline.core.config import SelectionSettings, checked
from pipeline.core.progress import silent
from pipeline.core.stage import perform
from pipeline.pages.summary import summarise
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import films_in_shards
from pipeline.plan.request import BuildRequest
from pipeline.plan.status import film_rows
from pipeline.plan.workspace import Workspace
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from pipeline.stages.selection import Screen
from tests.support.datasets.built_dataset import SMALL, copy_of_built, small_film
from tests.support.media.films import make_film


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


def test_counts_stay_whole_in_a_narrow_terminal() -> None:
    shown = Console(width=60, file=(written := StringIO()))
    row = (
        "Long name of a film (2001) [1080p].mkv",
        "124:35",
        "1402",
        "2800",
        "1811",
        "402 near-duplicate, 97 two scenes",
    )
    shown.print(film_table([row]))
    _, first, *more = written.getvalue().splitlines()
    assert "124:35    1402   2800  1811" in first
    assert sorted("".join([first, *more]).replace(" ", "")) == sorted("".join(row).replace(" ", "")), "nothing is lost"


def test_a_film_that_leaves_the_shards_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first, data), second = copy_of_built(tmp_path), small_film(tmp_path / "second.mp4", frames=60)
    dataset = Workspace(str(data)).dataset
    (folder,) = dataset.folders()
    assert "not in the shards" not in summary_of(first, data, capsys)
    perform(Screen(SelectionSettings(min_light=255), PUBLISHED_EDGES), folder)  # as a build stopped at its captions
    said = summary_of(second, data, capsys)
    assert "not in the shards any more  film.mp4: its stages do not match any more; name the film in a build" in said
    assert films_in_shards(dataset) == {dataset.folders()[1].film_id}
    assert "not in the shards" not in summary_of(first, data, capsys)
    assert films_in_shards(dataset) == {folder.film_id}, "and the second film, a duplicate, is out by its verdicts"


def test_a_film_without_a_clip_is_named_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film, data = make_film(tmp_path / "short.mp4", frames=90, scenes=(0, 30, 60), size=(180, 320)), tmp_path / "data"
    said = summary_of(film, data, capsys)
    no_clip = "no clip: no scene is as long as a clip (2 s); the longest lasts 1.25 s"
    assert f"short.mp4: {no_clip}\n" in said
    assert "short.mp4: vertical film: clips show 38 % of its height" in said
    dataset = Workspace(str(data)).dataset
    [row] = film_rows(dataset, BuildRequest(films=(), out=data, config=checked(SMALL, "test")))
    assert row.no_clip == no_clip
    [seen] = summarise(dataset).films
    assert seen.warnings[0] == no_clip
    assert seen.warnings[1].startswith("vertical film")
    assert "no clip: no scene is as long" in (data / "report.html").read_text()
