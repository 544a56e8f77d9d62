"""Splits: `train` or `val` for each scene of a film, by blocks of time; for a film too short for that, as a whole."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal

from pipeline.core.config import ShardSettings
from pipeline.core.records import Damage, Scene

Split = Literal["train", "val"]
SPLITS: tuple[Split, ...] = ("train", "val")


def scene_splits(
    scenes: Sequence[Scene], damage: Iterable[Damage], place: int, settings: ShardSettings
) -> dict[int, Split]:
    """The split of each scene of a film, by its number.

    A film in which no scene starts in a block of `val`, such as a film of one scene, is in one split as a whole. It is
    `val` if floor((n + 1) * s) > floor(n * s), with its place n among the data set's films and the share s: with a
    share of 0.2 the fifth film, the tenth, ... New films are appended, or take the place of the film that they
    replace, so they move no other; only where a film takes the path of another one of the data set, later ones move up.

    Args:
        scenes: all scenes of the film.
        damage: its spans that could not be decoded.
        place: number of the film in `dataset.json`, from 0.
        settings: share and length of the blocks.
    """
    film_seconds = film_end_seconds(scenes, damage)
    splits = {row.scene: split_of(row.film_id, row.start_seconds, film_seconds, settings) for row in scenes}
    share = settings.val_share
    if "val" not in splits.values() and math.floor((place + 1) * share) > math.floor(place * share):
        return dict.fromkeys(splits, "val")
    return splits


def split_of(film_id: str, scene_start_seconds: float, film_seconds: float, settings: ShardSettings) -> Split:
    """The split of a whole scene, by its start.

    Time is divided into blocks of `block_seconds`. With share s = val_share and phase p = hash(film_id) * (1 - s),
    hash in [0, 1), block b is `val` if floor((b + 1) * s + p) > floor(b * s + p): one in every 1/s blocks. So the share
    holds to within one block in every film, `val` is spread over the film, and no threshold of selection moves a clip
    to the other split. Block 0 is never `val`, because s + p < 1. A film too short for a block of each split is divided
    into just enough shorter ones, so that it has both if a scene starts there.
    """
    share = settings.val_share
    if share in (0, 1):
        return "val" if share else "train"
    blocks_wanted = math.ceil(1 / min(share, 1 - share))
    block = int(scene_start_seconds / min(settings.block_seconds, film_seconds / blocks_wanted))
    digest = hashlib.sha256(film_id.encode()).digest()
    phase = int.from_bytes(digest[:8], "big") / 2**64 * (1 - share)
    return "val" if math.floor((block + 1) * share + phase) > math.floor(block * share + phase) else "train"


def film_end_seconds(scenes: Iterable[Scene], damage: Iterable[Damage]) -> float:
    """End of the part of a film that was read, the length divided by `split_of`; 0.0 if nothing was read."""
    ends = chain((scene.end_seconds for scene in scenes), (part.end_seconds for part in damage))
    return max(ends, default=0.0)
