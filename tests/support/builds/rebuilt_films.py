"""Builds without Prefect of films that are already built, with the stages that ran and the status of the film."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.core.config import checked
from pipeline.core.stage import perform
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.status import StageState, film_rows
from pipeline.plan.workspace import Workspace
from tests.support.datasets.built_dataset import SMALL


def request_for(*films: Path, out: Path, **sections: Mapping[str, Any]) -> BuildRequest:
    return BuildRequest(films=films, out=out, config=checked({**SMALL, **sections}, "test"), until=Until.captions)


def redone(request: BuildRequest) -> dict[str, list[str]]:
    """Build without Prefect; return the stages that ran, by film."""
    plan = make_plan(request, Workspace(request.out))
    folders = [plan.dataset.folder(film_id) for film_id in plan.films]
    return {folder.film_id: [stage.name for stage in plan.stages if perform(stage, folder)] for folder in folders}


def states(request: BuildRequest, out: Path) -> dict[str, StageState]:
    (row,) = film_rows(Dataset(out), request)
    return {name: cell.state for name, cell in row.cells.items()}


def animegamer(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
