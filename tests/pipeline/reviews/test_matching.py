"""Matching of decisions to clips by film content and shared time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pipeline.core.records import Clip
from pipeline.reviews.matching import match
from tests.support.records import NAME, clip, decision, decision_about, sha256_of

FILM, OTHER = sha256_of(NAME), sha256_of("another.mkv")


def matched(clips: list[Clip], start_seconds: float, end_seconds: float, film: str = FILM) -> str | None:
    span: dict[str, Any] = {"start_seconds": start_seconds, "end_seconds": end_seconds}
    found = match([decision("MD", "run", film_sha256=film, **span)], {FILM: clips})
    assert len(found.unmatched) + len(found.foreign) + len(found.by_clip) == 1
    return next(iter(found.by_clip), None)


@pytest.mark.parametrize(
    ("start_seconds", "end_seconds", "same"),
    [
        (10.0, 12.0, True),
        (10.2, 12.2, True),
        (10.21, 12.21, False),
        (10.0, 11.8, True),  # 1.8 of 2 seconds
        (9.8, 12.3, False),
        (0.0, 1e300, False),
        (10.9, 10.91, False),
    ],
)
def test_a_decision_needs_nine_tenths_of_the_longer_span(start_seconds: float, end_seconds: float, same: bool) -> None:
    row = clip(start_seconds=10.0)
    assert (matched([row], start_seconds, end_seconds) == row.clip_id) is same


def test_clips_of_any_length_are_found_as_by_comparing_all() -> None:
    random.seed(7)
    clips = [clip(start_seconds=random.uniform(0, 60), seconds=random.choice([1, 2, 5, 5.2])) for _ in range(80)]
    hits = 0
    for _ in range(1000):
        row = random.choice(clips)
        start = row.start_seconds + random.gauss(0, 0.2)
        end = max(row.end_seconds + random.gauss(0, 0.2), start + 0.1)
        start = max(start, 0.0)
        shares = [
            (min(one.end_seconds, end) - max(one.start_seconds, start))
            / max(one.end_seconds - one.start_seconds, end - start)
            for one in clips
        ]
        best = max(shares)
        found = matched(clips, start, end)
        equal = {one.clip_id for one, share in zip(clips, shares, strict=True) if share > best - 1e-6}
        assert found in equal if best >= 0.9 else found is None
        hits += found is not None
    assert 150 < hits < 950


def test_decisions_of_other_films_are_foreign_and_order_is_kept() -> None:
    row = clip(start_seconds=4.0)
    span: dict[str, Any] = {"start_seconds": 4.0, "end_seconds": 6.0}
    here = [decision("MD", "run", **span), decision("MD", "walk", **span)]
    lost, foreign = decision("MD", "run", start_seconds=90.0, end_seconds=92.0), decision("MD", "x", film_sha256=OTHER)
    found = match([foreign, here[0], lost, here[1]], {FILM: [row]})
    assert found.by_clip == {row.clip_id: here}
    assert (found.unmatched, found.foreign) == ([lost], [foreign])
    assert match([here[0]], {FILM: []}).unmatched == [here[0]]


def test_many_decisions_find_their_clips_among_many() -> None:
    clips = [clip(start_seconds=2.0 * number) for number in range(6000)]
    decisions = [decision_about(row, FILM, "MD", "run") for row in clips]
    decisions += [decision("MD", "run", start_seconds=0.5, end_seconds=9e9)] * 300
    found = match(decisions * 3, {FILM: clips})
    assert len(found.by_clip) == len(clips)
    assert len(found.unmatched) == 900
