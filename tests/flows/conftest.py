"""Fixtures of the flow tests: Prefect with a separate home and one temporary server for the run, and a small film."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.commands.build import set_prefect_defaults
from tests.support.datasets.built_dataset import copy_of_built, small_film
from tests.support.shared_folders import own_folder

# Read when Prefect is first imported, so they are set before any test module does.
set_prefect_defaults()
os.environ["PREFECT_HOME"] = str(own_folder("prefect"))
os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"
os.environ.pop("PREFECT_API_URL", None)
os.environ.pop("PREFECT_PROFILE", None)


@pytest.fixture(scope="session")
def prefect() -> Iterator[None]:
    """Real Prefect server for flows run in this process, without the heartbeat that adds a second to every flow."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=90), temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


@pytest.fixture
def film(tmp_path: Path) -> Path:
    return small_film(tmp_path / "film.mp4")


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Path]:
    """Film and its finished dataset."""
    return copy_of_built(tmp_path)
