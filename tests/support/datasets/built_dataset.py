"""Small dataset, built once per test run and handed out as copies: six seconds of film in two scenes.

    film, data = copy_of_built(tmp_path)
    request = BuildRequest(films=(film,), out=data, config=checked(SMALL, "test"))  # has nothing to do

It is built in this process, stage by stage and without Prefect, so that tests of later steps need not wait for a build.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pipeline.core.config import checked
from pipeline.core.progress import silent
from pipeline.core.stage import perform
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import publish_stages
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from tests.support.media.films import make_film
from tests.support.shared_folders import shared_folder

SMALL: dict[str, Any] = {"looks": {"text": False}, "clips": {"width": 180, "height": 120}}
FILM = "film.mp4"


def small_film(path: Path, frames: int = 144) -> Path:
    """Film of six seconds and two scenes."""
    return make_film(path, frames=frames, scenes=[0, 70])


def copy_of_built(folder: Path) -> tuple[Path, Path]:
    """Copy the film and its dataset to `film.mp4` and `data` in this folder."""
    built = shared_folder("built", _build)
    film = Path(shutil.copy2(built / FILM, folder / FILM))
    data = Path(shutil.copytree(built / "data", folder / "data"))
    make_plan(_request(film, data), Workspace(str(data)))  # records the new path of the film
    return film, data


def build_here(request: BuildRequest) -> None:
    """Build and publish in this process, film by film and stage by stage."""
    plan = make_plan(request, Workspace(request.out))
    for folder in map(plan.dataset.folder, plan.films):
        if folder.film_id in plan.unfinished:
            folder.sweep()
        for stage in plan.stages:
            perform(stage, folder)
    for step in publish_stages(plan.config):
        step.run(plan.dataset, silent)


def _build(folder: Path) -> None:
    build_here(_request(small_film(folder / FILM), folder / "data"))


def _request(film: Path, data: Path) -> BuildRequest:
    return BuildRequest(films=(film,), out=data, config=checked(SMALL, "test"))
