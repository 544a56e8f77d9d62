"""Repeated stretches of a series: openings, endings, recaps and previews, by the places of equal stretches.

Stretches that overlap in one episode, and those that are aligned, are copies of each other. Their kind follows from
where they are:

- Opening or ending: at least 15 seconds, and two copies at a like place in the first or in the last third.
- Preview: a copy in the last two minutes, after the ending, of pictures that a later episode has elsewhere.
- Recap: a later copy in the first third of its episode.
- Repeated: any other copy, such as an eyecatch, or a short title at like times in three episodes.

A chapter named opening or ending decides for all copies. Stretches of more than half an episode are left to the search
for near-duplicates: such episodes are copies of one another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from pipeline.core.records import Film, Repeat
from pipeline.stages.season.alignment import GAP_SECONDS, Alignment, HashedEpisode, find_alignments
from pipeline.stages.stretches import kind_of_chapter

LEAST_THEME_SECONDS = 15.0
_LIKE_SHARE = 1 / 8
"""Share of an episode by which the places of an opening or ending may differ."""
_PREVIEW_SECONDS = 120.0
_TITLE_SECONDS = 15.0
"""Largest difference of the starts of a title that three episodes have."""


@dataclass(frozen=True)
class _Copy:
    """One stretch of an episode that another one has too."""

    episode: int
    start: float
    end: float

    def overlaps(self, other: _Copy) -> bool:
        """Return True if at least half of the shorter one is in both."""
        shared = min(self.end, other.end) - max(self.start, other.start)
        return self.episode == other.episode and 2 * shared >= min(self.seconds, other.seconds)

    @property
    def seconds(self) -> float:
        return self.end - self.start


def repeats_of(films: Sequence[Film], episodes: Sequence[HashedEpisode]) -> list[tuple[Repeat, ...]]:
    """Return the repeated stretches of each episode of a series, in order of their start; the episodes are in order."""
    found: list[list[Repeat]] = [[] for _ in films]
    groups = [group for group in _groups(find_alignments(episodes)) if not _is_copy_of_episode(group, films)]
    themes = [(group, _theme(group, films)) for group in groups]
    ends = [0.0 for _ in films]
    for group, theme in themes:
        for copy in group if theme == "ending" else ():
            ends[copy.episode] = max(ends[copy.episode], copy.end)
    for group, theme in themes:
        kinds = [theme or _kind(copy, group, films, ends) for copy in group]
        first = next((copy.episode for copy, kind in zip(group, kinds, strict=True) if kind != "preview"), None)
        later = {kind for copy, kind in zip(group, kinds, strict=True) if copy.episode != first}
        for copy, kind in zip(group, kinds, strict=True):
            is_first = copy.episode == first and kind != "preview"
            if is_first and theme is None and "repeated" not in later:
                continue  # what is recapped or previewed is no repeat itself
            repeat = Repeat(
                start_seconds=round(max(copy.start, 0.0), 3),
                end_seconds=round(min(copy.end, films[copy.episode].duration_seconds), 3),
                kind="repeated" if is_first and theme is None else kind,
                is_first=is_first,
            )
            found[copy.episode].append(repeat)
    return [tuple(_joined(sorted(rows, key=lambda row: (row.start_seconds, row.end_seconds)))) for rows in found]


def _joined(rows: Iterable[Repeat]) -> list[Repeat]:
    """Join the shots of a recap or preview over short gaps: shots in between were too short for a clip."""
    joined: list[Repeat] = []
    for row in rows:
        last = joined[-1] if joined else None
        if (
            last
            and row.kind == last.kind in ("recap", "preview")
            and row.start_seconds - last.end_seconds <= GAP_SECONDS
        ):
            end = max(last.end_seconds, row.end_seconds)
            joined[-1] = last.model_copy(update={"end_seconds": end})
        else:
            joined.append(row)
    return joined


def _groups(alignments: Iterable[Alignment]) -> Iterator[list[_Copy]]:
    """Yield the copies of each stretch, in order; each has the median bounds of the alignments that found it."""
    pairs = [
        (
            _Copy(one.first, one.start, one.end),
            _Copy(one.second, one.start + one.offset, one.end + one.offset),
        )
        for one in alignments
    ]
    sides = [side for pair in pairs for side in pair]
    parents = list(range(len(sides)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = number = parents[parents[number]]
        return number

    def join(one: int, other: int) -> None:
        parents[root(one)] = root(other)

    by_episode: defaultdict[int, list[int]] = defaultdict(list)
    for number, side in enumerate(sides):
        for other in by_episode[side.episode]:
            if side.overlaps(sides[other]):
                join(number, other)
        by_episode[side.episode].append(number)
    for number in range(0, len(sides), 2):
        join(number, number + 1)
    members: defaultdict[int, list[_Copy]] = defaultdict(list)
    for number, side in enumerate(sides):
        members[root(number)].append(side)
    for group in members.values():
        yield sorted(_merged(group), key=lambda copy: (copy.episode, copy.start))


def _merged(sides: Sequence[_Copy]) -> Iterator[_Copy]:
    """Yield one copy for each place in an episode: stretches that overlap, however little, are one."""
    ordered = sorted(sides, key=lambda side: (side.episode, side.start))
    places: list[list[_Copy]] = []
    for side in ordered:
        last = places[-1] if places else []
        if last and last[0].episode == side.episode and side.start < max(each.end for each in last):
            last.append(side)
        else:
            places.append([side])
    for place in places:
        longest = max(side.seconds for side in place)
        whole = [side for side in place if 2 * side.seconds >= longest]
        start, end = median(side.start for side in whole), median(side.end for side in whole)
        yield replace(place[0], start=start, end=end)


def _is_copy_of_episode(group: Sequence[_Copy], films: Sequence[Film]) -> bool:
    return any(2 * copy.seconds > films[copy.episode].duration_seconds for copy in group)


def _theme(group: Sequence[_Copy], films: Sequence[Film]) -> Literal["opening", "ending"] | None:
    """Kind of a stretch that is an opening or ending in every copy; None if it is neither."""
    for copy in group:
        for chapter in films[copy.episode].chapters or ():
            kind = kind_of_chapter(chapter.title)
            place = _Copy(copy.episode, chapter.start_seconds, chapter.end_seconds)
            if kind in ("opening", "ending") and copy.overlaps(place):
                return kind
    long = [copy for copy in group if copy.seconds >= LEAST_THEME_SECONDS]
    lengths = {copy: films[copy.episode].duration_seconds for copy in long}
    openings = sorted(copy.start / seconds for copy, seconds in lengths.items() if copy.start <= seconds / 3)
    endings = sorted((seconds - copy.end) / seconds for copy, seconds in lengths.items() if copy.end >= seconds * 2 / 3)
    for kind, places in (("opening", openings), ("ending", endings)):
        if any(after - before <= _LIKE_SHARE for before, after in pairwise(places)):
            return "opening" if kind == "opening" else "ending"
    return None


def _kind(
    copy: _Copy, group: Sequence[_Copy], films: Sequence[Film], endings: Sequence[float]
) -> Literal["recap", "preview", "repeated"]:
    """Kind of a copy of a stretch that is no opening or ending; `endings`: where the ending of each episode ends."""

    def at_the_end(one: _Copy) -> bool:
        seconds = films[one.episode].duration_seconds
        return one.start >= max(seconds - _PREVIEW_SECONDS, endings[one.episode] - 1.0)

    later = [other for other in group if other.episode > copy.episode]
    if at_the_end(copy) and any(not at_the_end(other) for other in later):
        return "preview"
    earlier = [other for other in group if other.episode < copy.episode]
    alike = {other.episode for other in group if abs(other.start - copy.start) <= _TITLE_SECONDS}
    is_title = len(alike) > 2  # two episodes may recap one moment, but hardly at one time
    if earlier and copy.start <= films[copy.episode].duration_seconds / 3 and not is_title:
        return "recap"
    return "repeated"
