"""Doubts about captions, the order of a review: flags, odd replies, rare words, motion near the edge of a level.

Each doubt is a text for the reviewer with a weight. They guide the order of work only; nothing else reads them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pipeline.core.records import Caption
from pipeline.reviews.clips import ReviewableClip
from prompts.tags import what_pattern

WORDS = ("S", "MD", "EV")
"""Tags whose rare values are doubtful."""
LEAST_VALUES = 40
"""Number of captions with a tag from which on a value seen once is rare."""
NEAR_EDGE = 0.03
"""Relative distance to the edge of a motion level that counts as near."""


@dataclass(frozen=True)
class Doubt:
    """Reason to look at a clip early."""

    text: str
    weight: int


def doubts_of(clips: Sequence[ReviewableClip], edges: Sequence[float] | None) -> dict[str, list[Doubt]]:
    """Return the doubts about each clip, by clip id.

    Args:
        clips: all clips of the data set, which decide the values that are rare.
        edges: edges of the motion levels.
    """
    captions = [clip.caption for clip in clips if clip.caption and not clip.caption.fault]
    rare = {tag: _rare(Counter(getattr(caption, tag) for caption in captions)) for tag in WORDS}
    return {clip.clip_id: [*_about_caption(clip.caption, rare), *_near_edge(clip, edges or ())] for clip in clips}


def _rare(counts: Counter[str | None]) -> set[str]:
    """Return the values seen once, unless most are: then being the only one says nothing."""
    counts.pop(None, None)
    once = {value for value, count in counts.items() if value and count == 1}
    return once if counts.total() >= LEAST_VALUES and 2 * len(once) < counts.total() else set()


def _about_caption(caption: Caption | None, rare: Mapping[str, set[str]]) -> Iterator[Doubt]:
    if caption is None:
        return
    if caption.fault:
        yield Doubt(caption.fault, 5)
        return
    yield from (Doubt(flag, 3) for flag in caption.flags)
    if caption.raw_what and not _form(caption.characters or ()).fullmatch(caption.raw_what.strip()):
        yield Doubt("the reply was not in its form", 1)
    if caption.raw_sentence and not caption.sentence:
        yield Doubt("the sentence of the reply was unusable", 1)
    for tag, values in rare.items():
        if (value := getattr(caption, tag)) in values:
            yield Doubt(f"rare {tag}: {value}", 1)


@cache
def _form(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(what_pattern(names))


def _near_edge(clip: ReviewableClip, edges: Sequence[float]) -> Iterator[Doubt]:
    for level, edge in enumerate(edges, start=1):
        if clip.scope_px is not None and abs(clip.scope_px - edge) <= NEAR_EDGE * edge:
            yield Doubt(f"motion near the edge of levels {level} and {level + 1}", 1)
