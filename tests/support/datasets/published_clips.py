"""Published clips: readers of a dataset's shards, and changes of the tables that they are made from."""

from __future__ import annotations

import tarfile

from pipeline.core.config import ShardSettings
from pipeline.core.measurements import Motion
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.publish.samples import Sample
from pipeline.publish.shards import read_index

SMALL = ShardSettings(samples=3)
Row = Caption | Clip | Motion | Verdict
"""Row with a clip id that samples are made from."""


def tars(dataset: Dataset) -> dict[str, bytes]:
    """Every tar below `shards/` by its relative path, temporary and foreign files included."""
    root = dataset.root / "shards"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.tar"))}


def samples_of(dataset: Dataset) -> list[Sample]:
    """Sample records in the published shards, in the order of the index."""
    found = []
    for shard in read_index(dataset.root).shards:
        with tarfile.open(dataset.root / "shards" / shard.name) as tar:
            for name in tar.getnames():
                if name.endswith(".json"):
                    found.append(Sample.model_validate_json(tar.extractfile(name).read()))  # type: ignore[union-attr]
    return found


def change(dataset: Dataset, table: str, record: type[Row], film: int = 0, **fields: object) -> str:
    """Change values of the first row of a film's table; return its clip id."""
    folder = dataset.folders()[film]
    first, *rest = folder.read(table, record)
    folder.write(table, [first.model_copy(update=fields), *rest])
    return first.clip_id
