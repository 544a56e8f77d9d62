"""Damage to published shards: edits of the index, the first tar, its members, samples and the tables."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.core.atomic import write_json
from pipeline.core.store import Dataset
from pipeline.publish.shards import read_index

Member = tuple[tarfile.TarInfo, bytes]


def first_tar(dataset: Dataset) -> Path:
    return dataset.root / "shards" / read_index(dataset.root).shards[0].name


def edit_index(dataset: Dataset, edit: Callable[[dict[str, Any]], object]) -> None:
    path = dataset.root / "shards" / "index.json"
    index = json.loads(path.read_text())
    edit(index)
    write_json(path, index)


def replace_tar(dataset: Dataset, content: bytes) -> None:
    """Give the first shard other bytes and update the index, as a repacking tool would."""
    path = first_tar(dataset)
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    edit_index(dataset, lambda index: index["shards"][0].update(bytes=len(content), sha256=sha256))


def repack(dataset: Dataset, edit: Callable[[list[Member]], list[Member]]) -> None:
    with tarfile.open(first_tar(dataset)) as tar:
        members = [(info, tar.extractfile(info).read()) for info in tar]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, content in edit(members):
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content))
    replace_tar(dataset, buffer.getvalue())


def edit_member(dataset: Dataset, extension: str, edit: Callable[[bytes], bytes]) -> None:
    """Change the first member with this extension."""

    def change(members: list[Member]) -> list[Member]:
        place = next(n for n, (info, _) in enumerate(members) if info.name.endswith(extension))
        members[place] = (members[place][0], edit(members[place][1]))
        return members

    repack(dataset, change)


def edit_sample(dataset: Dataset, edit: Callable[[dict[str, Any]], object]) -> None:
    def change(content: bytes) -> bytes:
        sample = json.loads(content)
        edit(sample)
        return json.dumps(sample, ensure_ascii=False).encode()

    edit_member(dataset, "json", change)


def change_row(dataset: Dataset, table: str, record: Any, **fields: Any) -> None:
    folder = dataset.folders()[0]
    first, *rest = folder.read(table, record)
    folder.write(table, [first.model_copy(update=fields), *rest])


def extra_member(name: str, content: bytes = b"x", **fields: Any) -> Callable[[list[Member]], list[Member]]:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return lambda members: [*members, (info, content)]
