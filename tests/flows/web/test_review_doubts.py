"""Doubts about captions: each kind is found where it is, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.web.review_doubts import doubts_of
from pipeline.core.records import Caption
from pipeline.reviews.clips import ReviewableClip

REPLY = (
    "<S>girl</S><MD>run</MD><EV>sea</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST><SE>A girl runs by the sea.</SE>"
)


def clip(number: int, scope_px: float | None = 4.0, **caption: Any) -> ReviewableClip:
    name = f"clip-{number}"
    words = {"raw_what": REPLY, "S": "girl", "MD": "run", "EV": "sea", "sentence": "A girl runs by the sea."}
    return ReviewableClip(
        film_id="film",
        film_name="film.mkv",
        film_sha256="0" * 64,
        clip_id=name,
        path=Path("nowhere.mp4"),
        scene=0,
        index=number,
        start_seconds=2.0 * number,
        end_seconds=2.0 * number + 2,
        level=2,
        scope_px=scope_px,
        keep=True,
        reasons=(),
        caption=Caption(clip_id=name, source="a-model", **{**words, **caption}),
        standings={},
    )


def found(*odd: ReviewableClip) -> dict[str, list[str]]:
    """Doubts about these clips among fifty plain ones."""
    plain = [clip(number) for number in range(100, 150)]
    doubts = doubts_of([*odd, *plain], (1.5, 6.25, 12.5, 27.5))
    assert all(doubts[one.clip_id] == [] for one in plain)
    return {one.clip_id: [doubt.text for doubt in doubts[one.clip_id]] for one in odd}


def test_every_kind_of_doubt() -> None:
    odd = (
        clip(1, fault="no usable reply"),
        clip(2, flags=("social alone: nobody is on screen",)),
        clip(3, raw_what=f"Sure! {REPLY}"),
        clip(4, sentence=None, raw_sentence="???"),
        clip(5, EV="volcano"),
        clip(6, scope_px=6.3),
        clip(7, scope_px=None),
    )
    assert found(*odd) == {
        "clip-1": ["no usable reply"],
        "clip-2": ["social alone: nobody is on screen"],
        "clip-3": ["the reply was not in its form"],
        "clip-4": ["the sentence of the reply was unusable"],
        "clip-5": ["rare EV: volcano"],
        "clip-6": ["motion near the edge of levels 2 and 3"],
        "clip-7": [],
    }


def test_values_that_are_mostly_unique_are_not_rare() -> None:
    clips = [clip(number, MD=f"walk {number}") for number in range(50)]
    assert {clip_id: doubts for clip_id, doubts in doubts_of(clips, None).items() if doubts} == {}
