"""Fixtures of the game page and the review page: each served on loopback, and window sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.played_page import SIZES, Served, served
from tests.support.servers.reviewed_page import Reviewed, reviewing


@pytest.fixture(params=["desk", pytest.param("phone", marks=pytest.mark.slow)])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    return SIZES[request.param]


@pytest.fixture
def game(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as game:
        yield game
        game.engine.go.set()


@pytest.fixture
def review(tmp_path: Path) -> Iterator[Reviewed]:
    with reviewing(tmp_path) as page:
        yield page
