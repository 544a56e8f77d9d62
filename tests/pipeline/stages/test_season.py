"""Repeats among episodes: alignments of hashed pictures, and the kinds of the stretches they share."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.core.config import SelectionSettings
from pipeline.core.records import Chapter, Film
from pipeline.stages.season.alignment import HashedEpisode, find_alignments
from pipeline.stages.season.repeats import repeats_of
from pipeline.stages.stretches import stretches_of
from tests.support import records

FPS = 8


class Shots:
    """Hashes of pictures that drift, with the times of their cuts; `show` cuts them into an episode."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def shots(self, seconds: float, length: float = 3.0) -> list[NDArray[np.uint8]]:
        """Shots, each as its frames by 256 bits."""
        return [self._shot(round(min(length, seconds - start) * FPS)) for start in np.arange(0, seconds, length)]

    def _shot(self, frames: int) -> NDArray[np.uint8]:
        bits = self._random.integers(0, 2, 256, dtype=np.uint8)
        rows = []
        for _ in range(frames):
            bits[self._random.choice(256, 3, replace=False)] ^= 1
            rows.append(bits.copy())
        return np.array(rows)

    def coded(self, shots: list[NDArray[np.uint8]], flips: int = 8) -> list[NDArray[np.uint8]]:
        """The same shots in another encoding; many flips are credits."""
        copies = [shot.copy() for shot in shots]
        for copy in copies:
            for row in copy:
                row[self._random.choice(256, flips, replace=False)] ^= 1
        return copies


def episode(name: str, *parts: list[NDArray[np.uint8]], margin: int = 1, gap: int = 0) -> HashedEpisode:
    """An episode of shots; the first frames of a shot, and its last `gap` ones, are in no clip."""
    shots = [shot for part in parts for shot in part]
    starts = np.cumsum([0, *(len(shot) for shot in shots)])
    inside = [np.arange(start + margin, end - gap) for start, end in pairwise(starts)]
    frames = np.concatenate(inside)
    bits_MB = np.concatenate(shots)[frames]
    hashes_M4 = np.packbits(bits_MB, axis=1).view(np.uint64)
    cuts = tuple(float(start) / FPS for start in starts)
    return HashedEpisode(name, cuts[-1], frames / FPS, hashes_M4, cuts)


def films(*episodes: HashedEpisode, **changes: Any) -> list[Film]:
    return [
        records.film(f"Kiki - {number:02d}.mkv", seconds=one.seconds, series="Kiki", episode=number, **changes)
        for number, one in enumerate(episodes, start=1)
    ]


def left_out(*episodes: HashedEpisode, chapters: Any = None, **settings: Any) -> list[list[tuple[float, float, str]]]:
    known = films(*episodes)
    if chapters:
        known[0] = known[0].model_copy(update={"chapters": chapters})
    found = [
        film.model_copy(update={"repeats": rows}) for film, rows in zip(known, repeats_of(known, episodes), strict=True)
    ]
    stretches = [stretches_of(film, SelectionSettings(**settings)) for film in found]
    return [[(one.start_seconds, one.end_seconds, one.reason) for one in row] for row in stretches]


@pytest.mark.parametrize("flips", [8, 30])
def test_a_stretch_is_found_up_to_its_cuts_in_other_encodings_and_under_credits(flips: int) -> None:
    source = Shots()
    shared = source.shots(20)
    under_credits = [*source.coded(shared[:3]), *source.coded(shared[3:], flips)]
    one = episode("a", source.shots(10), shared, source.shots(30), gap=6)
    other = episode("b", source.shots(25, 3.5), under_credits, source.shots(10, 5), gap=6)
    [found] = find_alignments([one, other])
    assert (found.start, found.end, found.offset) == pytest.approx((10, 30, 15), abs=0.3)


def test_a_first_shot_under_credits_belongs_to_the_stretch() -> None:
    source = Shots()
    first, shared = source.shots(0.5, 0.5), source.shots(20)
    one = episode("a", source.shots(10), first, shared, source.shots(30), margin=0)
    other = episode("b", source.shots(25), source.coded(first, 120), source.coded(shared), source.shots(9), margin=0)
    known = replace(other, cuts=tuple(cut for cut in other.cuts if cut != 25.5))
    [found] = find_alignments([one, known])
    assert (found.start, found.end, found.offset) == pytest.approx((10, 30.5, 15), abs=0.1)


def test_a_last_shot_under_many_credits_belongs_to_the_stretch() -> None:
    source = Shots()
    shared = source.shots(20, 2.5)
    veiled = [*source.coded(shared[:-1]), *source.coded(shared[-1:], 88)]
    one = episode("a", source.shots(10), shared, source.shots(30), margin=0)
    other = episode("b", source.shots(25), veiled, source.shots(9), margin=0)
    [found] = find_alignments([one, other])
    assert (found.start, found.end, found.offset) == pytest.approx((10, 30, 15), abs=0.1)


def test_a_still_shot_is_found_where_it_is_and_a_picture_of_half_a_second_is_not() -> None:
    source = Shots()
    still = [np.repeat(source.shots(3)[0][:1], 4 * FPS, axis=0)]
    longer = [np.repeat(still[0][:1], 9 * FPS, axis=0)]
    glimpse = source.shots(0.5, 0.5)
    one = episode("a", source.shots(10, 5), still, source.shots(11), glimpse, source.shots(9), margin=0)
    other = episode("b", source.shots(20), source.coded(longer), source.shots(8), glimpse, source.shots(9), margin=0)
    [found] = find_alignments([one, other])
    assert (found.start, found.end) == pytest.approx((10, 14), abs=0.1)


def test_episodes_without_a_common_picture_share_nothing() -> None:
    source = Shots()
    assert find_alignments([episode(name, source.shots(60)) for name in "abc"]) == []
    assert find_alignments([]) == []


def season() -> list[HashedEpisode]:
    """Three episodes: opening, ending, a recap of the one before, a preview of the next, and an eyecatch."""
    source = Shots()
    stories = [source.shots(60, 5) for _ in range(3)]
    opening, ending, eyecatch = source.shots(18), source.shots(16), source.shots(4, 4)
    return [
        episode(
            str(number),
            *([] if number == 0 else [source.coded(stories[number - 1][4:6])]),
            source.coded(opening),
            story[:8],
            source.coded(eyecatch),
            story[8:],
            source.coded(ending[:2]),
            source.coded(ending[2:], 20),
            *([] if number == 2 else [source.coded(stories[number + 1][9:11])]),
        )
        for number, story in enumerate(stories)
    ]


def test_openings_endings_recaps_and_previews_are_known_by_their_places() -> None:
    kinds = [[reason for _, _, reason in row] for row in left_out(*season())]
    assert kinds == [
        ["opening", "ending", "preview"],
        ["recap", "opening", "repeated", "ending", "preview"],
        ["recap", "opening", "repeated", "ending"],
    ]
    [recap, opening, eyecatch, ending, preview] = left_out(*season())[1]
    bounds = [time for start, end, _ in (recap, opening, eyecatch, ending, preview) for time in (start, end)]
    assert bounds == pytest.approx([0, 10, 10, 28, 68, 72, 92, 108, 108, 118], abs=0.3)


def test_the_settings_keep_all_copies_or_the_first() -> None:
    first = left_out(*season(), openings="first", endings="keep", recaps="keep", previews="keep", repeats="drop")
    assert [[reason for _, _, reason in row] for row in first] == [
        ["repeated"],
        ["opening", "repeated"],
        ["opening", "repeated"],
    ]


def test_a_removed_episode_is_no_witness() -> None:
    episodes = season()
    assert left_out(episodes[0]) == [[]], "one episode only"
    kinds = [[reason for _, _, reason in row] for row in left_out(episodes[0], episodes[2])]
    assert kinds == [["opening", "ending"], ["opening", "repeated", "ending"]]


def test_a_short_title_in_three_episodes_is_no_recap() -> None:
    source = Shots()
    title = source.shots(5, 5)
    rows = left_out(
        *(episode(name, source.coded(title), source.shots(60)) for name in "abc"),
        episode("d", source.shots(4), source.coded(title), source.shots(50)),
    )
    assert [[reason for _, _, reason in row] for row in rows] == [[], ["repeated"], ["repeated"], ["repeated"]]


def test_a_chapter_names_the_copies_in_other_episodes() -> None:
    source = Shots()
    short = source.shots(9)
    chapter = Chapter(start_seconds=30, end_seconds=39, title="Opening")
    rows = left_out(
        episode("a", source.shots(30), short, source.shots(40)),
        episode("b", source.shots(60), source.coded(short), source.shots(20)),
        chapters=(chapter,),
    )
    assert [{reason for _, _, reason in row} for row in rows] == [{"opening"}, {"opening"}]


def test_a_trailer_and_a_second_copy_of_an_episode_are_no_opening() -> None:
    source = Shots()
    story = source.shots(90)
    whole = episode("a", story)
    trailer = episode("t", source.shots(5), *([shot] for shot in source.coded(story[::6])), source.shots(4))
    kinds = {reason for row in left_out(whole, trailer) for _, _, reason in row}
    assert kinds <= {"recap", "repeated"}
    assert left_out(whole, episode("copy", source.coded(story))) == [[], []], "left to near-duplicates"
