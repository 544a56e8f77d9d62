"""Fixtures that several tests of the pipeline share: a dataset ready to be published, and an object store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.core.store import Dataset
from tests.support.datasets.made_dataset import MODEL, make_dataset

if TYPE_CHECKING:
    from tests.support.servers.object_store import ObjectStore


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Dataset without shards; read-only."""
    return make_dataset(tmp_path_factory.mktemp("original"), captioner=MODEL)


@pytest.fixture
def dataset(original: Dataset, tmp_path: Path) -> Dataset:
    """Copy that a test may change."""
    return Dataset(shutil.copytree(original.root, tmp_path / "data"))


@pytest.fixture
def store(object_store: ObjectStore) -> ObjectStore:
    """Emptied object store, shared because starting one per test would take most of the time."""
    object_store.clear()
    return object_store
