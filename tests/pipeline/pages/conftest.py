"""Dataset with a report, shared by the tests of its numbers and of its page."""

from __future__ import annotations

import pytest

from pipeline.core.store import Dataset
from pipeline.pages.report import write_report
from pipeline.pages.summary import summarise
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Dataset of two films, 20 clips of which 15 are kept, 3 damaged seconds, model captions, shards, and a report."""
    dataset = make_dataset(tmp_path_factory.mktemp("made"), captioner=MODEL, damaged_seconds=1.5)
    write_shards(dataset, summarise(dataset).config.shards)
    write_report(dataset)
    return dataset
