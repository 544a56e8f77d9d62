"""Footage shared by the tests, fetched by package name; without it tests are skipped, in CI they fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

# One thread a process, before torch is imported: the suite runs a process per core, and threads waiting for
# each other on a busy core are many times slower than one thread alone.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from examples.bunny.film import fetch_bunny, fetch_trailer
from examples.world.film import compose_film
from examples.world.scene_changes import short_film
from examples.world.truth import Truth
from pipeline.core.errors import UserError
from tests.support.shared_folders import run_folder

run_folder()  # in the first process, before it starts those of pytest-xdist

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.servers.object_store import ObjectStore


@pytest.fixture(scope="session")
def bunny() -> Path:
    """Path of all of Big Buck Bunny, 1280x720 at 24 fps."""
    return _fetched(fetch_bunny)


@pytest.fixture(scope="session")
def bunny_trailer() -> Path:
    """Path of a trailer of Big Buck Bunny."""
    return _fetched(fetch_trailer)


@pytest.fixture(scope="session")
def composed_film(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """2D film composed from anime art, with its ground truth."""
    path = tmp_path_factory.mktemp("composed") / "composed.mp4"
    try:
        return path, compose_film(path, short_film())
    except UserError as error:
        _unobtainable(error)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Real browser for the pages."""
    from tests.support.servers.chromium import launched

    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def object_store() -> Iterator[ObjectStore]:
    """S3-compatible store on loopback, empty at first; while it runs, the environment points to it."""
    from tests.support.servers.object_store import ObjectStore  # takes seconds, and most tests need no store

    with ObjectStore() as store:
        yield store


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Enable SIGINT in programs that the test starts, even if the test run ignores it (`&` in a script)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _fetched(fetch: Callable[[], Path]) -> Path:
    try:
        return fetch()
    except UserError as error:
        _unobtainable(error)


def _unobtainable(error: Exception) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"CI must have the footage: {error}")
    pytest.skip(str(error))
