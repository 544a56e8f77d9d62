"""Fixtures that several tests of the pipeline share: a data set ready to be published, and an object store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.core.store import Dataset
from tests.support.made_dataset import MODEL, make_dataset

if TYPE_CHECKING:
    from tests.support.object_store import ObjectStore


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Everything but the shards; not to be changed."""
    return make_dataset(tmp_path_factory.mktemp("original"), captioner=MODEL)


@pytest.fixture
def dataset(original: Dataset, tmp_path: Path) -> Dataset:
    """A copy that a test may change."""
    return Dataset(shutil.copytree(original.root, tmp_path / "data"))


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectStore]:
    """The server behind `store`; not to be used without it."""
    from tests.support.object_store import ObjectStore  # takes seconds, and most tests here need no store

    with ObjectStore() as store:
        yield store


@pytest.fixture
def store(running: ObjectStore) -> ObjectStore:
    """An empty store; starting a server for each test would take most of the time."""
    running.clear()
    return running
