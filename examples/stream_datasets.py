"""Stream a dataset from an object store with Hugging Face `datasets`.

Training's reader checks size and SHA-256 of every shard. Version 5.2 of `datasets` cannot open tars at `s3://` itself
(huggingface/datasets#7295). If the processes cannot share the shards evenly, `datasets` reads every shard in every
process and skips clips.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

from training.data.shards import ShardFile, open_shards, unpack

ADDRESS = "s3://bucket/data"


def samples(shards: Sequence[ShardFile]) -> Iterator[dict[str, Any]]:
    """Yield the clips of some shards, encoded, with the instruction line and the facts about motion."""
    for shard in shards:
        for key, members in unpack(shard, ["json", "mp4", "txt"]):
            facts = json.loads(members["json"])
            yield {"clip_id": key, "mp4": members["mp4"], "text": members["txt"].decode(), **facts["motion"]}


def loader(split: Literal["train", "val"], epoch: int, workers: int) -> DataLoader[dict[str, Any]]:
    """Return one epoch of a split, in a different order in each epoch."""
    # a list in gen_kwargs is shared out to the processes and their workers
    clips = IterableDataset.from_generator(samples, gen_kwargs={"shards": open_shards(ADDRESS, split)})
    clips = clips.shuffle(seed=1, buffer_size=200)  # the same seed in every process
    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    clips = split_dataset_by_node(clips, rank=rank, world_size=processes)
    clips.set_epoch(epoch)  # last: splitting forgets it
    return DataLoader(clips, batch_size=None, num_workers=workers)
