"""Filling of feature caches: disk space checked first, then the missing shards shared out evenly over the processes.

    work = share_out(caches, names, accelerator)                       the same plan in every process
    encoder.make("latents", work["latents"], watch)                    its network is loaded once, if there is work

Two runs may fill one shared folder at the same time: both are correct, and a shard that one has finished is skipped by
the other.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from pipeline.core.errors import NoRoomError
from training.data.feature_cache import FeatureCache
from training.data.shards import ShardFile

Share = Mapping[FeatureCache, Sequence[ShardFile]]
"""Shards of each cache that a process has to encode."""


def share_out(caches: Sequence[FeatureCache], names: Sequence[str], accelerator: Accelerator) -> dict[str, Share]:
    """Return this process's share of the missing and stale shards, by feature. Collective call.

    Only the main process looks for missing files: later ones would see what the first have already written.
    """
    plan: list[dict[str, list[list[str]]] | None] = [None]
    if accelerator.is_main_process:
        plan = [{name: [sorted(cache.faults(name)) for cache in caches] for name in names}]
    (missing,) = broadcast_object_list(plan)
    assert missing is not None
    rank, processes = accelerator.process_index, accelerator.num_processes
    return {name: share_of(caches, missing[name], rank, processes) for name in names}


def share_of(caches: Sequence[FeatureCache], missing: Sequence[Sequence[str]], rank: int, processes: int) -> Share:
    """Return every n-th of the missing shards, the largest first, so that all processes get about as many clips."""
    pairs = [
        (cache, shard)
        for cache, names in zip(caches, missing, strict=True)
        for shard in cache.catalog.shards
        if shard.name in set(names)
    ]
    pairs.sort(key=lambda pair: pair[1].entry.samples, reverse=True)
    return {cache: [shard for owner, shard in pairs[rank::processes] if owner is cache] for cache in caches}


def space_needed(caches: Sequence[FeatureCache], names: Sequence[str], later_bytes: int = 0) -> str:
    """Return a line about the disk space that filling takes; empty if there is nothing to encode.

    Args:
        caches: caches of one folder.
        names: features to encode.
        later_bytes: space of features that later phases will add.

    Raises:
        NoRoomError: the disk of the folder has less space.
    """
    by_name = {name: sum(cache.bytes_to_make(name) for cache in caches) for name in names}
    if not any(by_name.values()):
        return ""
    folder, needed = caches[0].folder, sum(by_name.values())
    replaced = sum(cache.bytes_to_replace(name) for cache in caches for name in names)
    free = shutil.disk_usage(_existing(folder)).free
    parts = ", ".join(f"{name} {readable(size)}" for name, size in by_name.items() if size)
    if needed - replaced > free:
        raise NoRoomError(
            f"{folder}: {readable(needed)} of features to make ({parts}), but only {readable(free)} are free: make "
            "room, or name a folder on another disk with --features"
        )
    later = f"; later phases add {readable(later_bytes)}" if later_bytes else ""
    return f"features to make: {readable(needed)} ({parts}), {readable(free)} are free in {folder}{later}"


def readable(size: int) -> str:
    """Return a number of bytes in MB or GB."""
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
