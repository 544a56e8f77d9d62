"""Clips of a data set with everything known about each: times, motion, caption, verdict, split, review.

    for seen in seen_clips(dataset): ...

A table that is not made yet reads as empty, so a data set can be looked at before its build has finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.core.records import Caption, Clip, Damage, Motion, Reviewed, Scene, Verdict
from pipeline.core.store import Dataset, FilmFolder
from pipeline.publish.coverage import NOT_JUDGED
from pipeline.publish.shards import Index, read_index
from pipeline.publish.splits import Split, scene_splits
from pipeline.publish.vocabulary import Vocabulary, load_vocabulary
from pipeline.reviews.applied import read_reviewed, with_reviews
from pipeline.stages.selection import FAILED
from prompts.tags import instruction

ClipFate = Literal["kept", "dropped", "failed", "pending"]


@dataclass(frozen=True)
class SeenClip:
    """A clip with its records of the later stages and its review; None where a stage has none.

    `split` is the split of its scene, even if the clip is not kept; None before shards were written.
    """

    clip: Clip
    motion: Motion | None
    caption: Caption | None
    verdict: Verdict | None
    split: Split | None
    machine: Caption | None = None
    """Caption as the machine made it; `caption` is the published one."""
    reviewed: Reviewed | None = None
    """Reviewed values of the clip; None if nobody reviewed it."""

    @property
    def fate(self) -> ClipFate:
        """Fate of the clip; `pending`: the build has not judged it yet."""
        if self.verdict is None:
            return "pending"
        if self.verdict.keep:
            return "kept"
        return "failed" if self.verdict.reasons[0].startswith(FAILED) else "dropped"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons it is not in the shards; empty for a kept clip."""
        if self.verdict is None:
            return (NOT_JUDGED,)
        return () if self.verdict.keep else tuple(reason.removeprefix(FAILED) for reason in self.verdict.reasons)

    @property
    def overruled(self) -> tuple[str, ...]:
        """Reasons to drop it that a review overrules; empty for other clips."""
        return self.verdict.reasons if self.verdict and self.verdict.keep else ()

    @property
    def level(self) -> int | None:
        """Motion level 1..5, None if unknown."""
        return self.verdict.level if self.verdict else None

    @property
    def answer(self) -> Caption | None:
        """The published caption; None if there is none or its reply is quarantined."""
        return self.caption if self.caption and not self.caption.fault else None

    @property
    def text(self) -> str:
        """The instruction line; empty if none of its tags is known."""
        if (said := self.answer) is None:
            return ""
        return instruction(said.characters, said.S, said.MD, said.EV, said.MA, said.actor)


def seen_clips(dataset: Dataset) -> list[SeenClip]:
    """Return all clips of a data set, film by film and in time order, dropped ones too.

    Raises:
        UserError: a file of the data set cannot be read.
    """
    index, vocabulary = read_index_if_made(dataset), load_vocabulary(dataset.root)
    return [
        seen
        for place, folder in enumerate(dataset.folders())
        for seen in film_clips(folder, splits_of(folder, place, index), vocabulary)
    ]


def film_clips(folder: FilmFolder, splits: Mapping[int, Split], vocabulary: Vocabulary) -> list[SeenClip]:
    """Return the clips of a film in time order.

    Args:
        folder: of the film.
        splits: split of each scene, see `splits_of`; empty: unknown.
        vocabulary: of the data set.

    Raises:
        StoreError: a table cannot be read.
    """
    verdicts = {row.clip_id: row for row in folder.read_if_made("verdicts", Verdict)}
    motions = {row.clip_id: row for row in folder.read_if_made("motion", Motion)}
    machine = {row.clip_id: row for row in folder.read_if_made("captions", Caption)}
    reviewed = read_reviewed(folder)
    captions = with_reviews(machine.values(), reviewed)
    published = {clip_id: vocabulary.applied(caption) for clip_id, caption in captions.items()}
    return [
        SeenClip(
            clip,
            motions.get(clip.clip_id),
            published.get(clip.clip_id),
            verdicts.get(clip.clip_id),
            splits.get(clip.scene),
            machine.get(clip.clip_id),
            reviewed.get(clip.clip_id),
        )
        for clip in sorted(folder.read_if_made("clips", Clip), key=lambda clip: clip.start_seconds)
    ]


def read_index_if_made(dataset: Dataset) -> Index | None:
    """Return the index of the shards; None before shards were written.

    Raises:
        StoreError: it is not an index.
    """
    return read_index(dataset.root) if (dataset.root / "shards" / "index.json").exists() else None


def splits_of(folder: FilmFolder, place: int, index: Index | None) -> dict[int, Split]:
    """Return the split of each scene of a film; nothing before shards were written.

    Args:
        folder: of the film.
        place: number of the film in `dataset.json`, from 0.
        index: of the data set.
    """
    if index is None:
        return {}
    scenes, damage = folder.read_if_made("scenes", Scene), folder.read_if_made("damage", Damage)
    return scene_splits(scenes, damage, place, index.settings)
