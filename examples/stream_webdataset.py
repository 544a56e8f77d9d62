"""Stream a dataset from an object store with webdataset and plain torch.

Processes (`torchrun`) and their workers read separate shards. Processes get different numbers of clips, so end the
epoch together, for example with torch's `Join`.
"""

from __future__ import annotations

import io
import json
import random
from typing import Any

import av
import fsspec  # type: ignore[import-untyped]
import torch
import webdataset as wds
from torch.utils.data import DataLoader
from webdataset.gopen import gopen_schemes

ADDRESS = "s3://bucket/data"
gopen_schemes["s3"] = lambda url, mode, _: fsspec.open(url, mode).open()


def decoded(sample: dict[str, Any]) -> dict[str, Any]:
    """Return frames (T, H, W, 3), RGB, uint8, with the instruction line and the motion level."""
    with av.open(io.BytesIO(sample["mp4"]), "r") as video:
        frames = [torch.from_numpy(frame.to_ndarray(format="rgb24")) for frame in video.decode(video=0)]
    level = sample["json"]["motion"]["level"]
    return {"clip_id": sample["__key__"], "frames": torch.stack(frames), "text": sample["txt"], "level": level}


def loader(split: str, epoch: int, workers: int) -> DataLoader[dict[str, Any]]:
    """Return one epoch of a split, in a different order in each epoch."""
    with fsspec.open(f"{ADDRESS}/shards/index.json") as file:
        shards = [shard["name"] for shard in json.load(file)["shards"] if shard["split"] == split]
    random.Random(epoch).shuffle(shards)  # the same order in every process, so that they share the shards
    clips = wds.WebDataset(
        [f"{ADDRESS}/shards/{name}" for name in shards],
        nodesplitter=wds.split_by_node,
        shardshuffle=False,  # shuffled above; `resampled=True` would draw shards with repeats
        empty_check=False,  # workers without a shard end at once
    )
    clips = clips.shuffle(200, seed=epoch).decode().map(decoded)
    return DataLoader(clips, batch_size=4, num_workers=workers)
