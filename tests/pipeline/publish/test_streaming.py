"""Examples of streaming, run as they are written: an object store, processes, workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import ShardSettings
from pipeline.publish.shards import Index, write_shards
from pipeline.remote.mirror import Mirror
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.servers.object_store import ObjectStore

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
DRIVER = """
if __name__ == "__main__":
    import sys
    for batch in loader("train", int(sys.argv[1]), workers=3):
        ids = batch["clip_id"]
        print(json.dumps({"ids": [ids] if isinstance(ids, str) else ids, "kinds": sorted(batch)}))
"""


@pytest.fixture(scope="module")
def index(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Index of a dataset in the store, with 8 shards of `train`."""
    dataset = make_dataset(tmp_path_factory.mktemp("streaming") / "data", captioner=MODEL, scenes=10)
    index = write_shards(dataset, ShardSettings(samples=3))
    assert [shard.split for shard in index.shards].count("train") >= 6
    Mirror(object_store.address("data"), dataset.root).push()
    return index


def streamed(script: Path, epoch: int, processes: int) -> list[list[dict[str, Any]]]:
    """Batches that each process got."""
    command = [sys.executable, str(script), str(epoch)]
    settings = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "HF_HOME": str(script.parent), "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, **settings, "RANK": str(rank), "WORLD_SIZE": str(processes)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    said = [process.communicate(timeout=240) for process in running]
    assert [process.returncode for process in running] == [0] * processes, said[0][1][-2000:]
    return [[json.loads(line) for line in out.splitlines()] for out, _ in said]


@pytest.mark.parametrize("library", ["webdataset", pytest.param("datasets", marks=pytest.mark.nightly)])
def test_every_clip_is_seen_once_an_epoch(index: Index, tmp_path: Path, library: str) -> None:
    script = tmp_path / "example.py"
    script.write_text((ROOT / f"examples/stream_{library}.py").read_text() + DRIVER)
    orders = []
    for epoch in (1, 2):
        shares = streamed(script, epoch, processes=2)
        ids = [clip_id for share in shares for batch in share for clip_id in batch["ids"]]
        assert len(set(ids)) == len(ids) == index.counts.split["train"]
        assert all(len(share) > 1 for share in shares)
        assert all({"level", "text"} <= set(batch["kinds"]) for share in shares for batch in share)
        orders.append(ids)
    assert orders[0] != orders[1]
