"""Flags of captions: doubts against the cast, the motion level and the scene."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.captions.rules import flagged, kinds_of
from pipeline.core.records import Caption
from tests.support import records

PLAIN = {"S": "girl", "MD": "run", "EV": "forest", "MA": "slowly", "SC": 0, "ET": 0, "ST": -1}


def flags_of(level: int = 3, **changes: Any) -> tuple[str, ...]:
    clip = records.clip()
    caption = Caption.model_validate({"clip_id": clip.clip_id, "source": "model", **PLAIN, **changes})
    [row] = flagged([caption], [clip], {clip.clip_id: level})
    assert row.model_copy(update={"flags": ()}) == caption.model_copy(update={"flags": ()})
    return row.flags


@pytest.mark.parametrize(
    ("level", "changes", "flag"),
    [
        (3, {"characters": (), "others": 0}, "subject against cast: girl acts, but nobody is on screen"),
        (3, {"characters": ("Bird",), "others": 0, "actor": "girl"},
         "subject against cast: girl acts, but only Bird is on screen"),
        (3, {"characters": ("Ponyo",), "others": 0, "actor": "Ponyo", "SC": 1},
         "social alone: characters interact, but only Ponyo is on screen"),
        (3, {"characters": (), "others": 1, "SC": 1},
         "social alone: characters interact, but only one unknown person is on screen"),
        (5, {"MA": "very slowly"}, "adverb against level: very slowly at level 5"),
        (1, {"MA": "violently"}, "adverb against level: violently at level 1"),
    ],
)  # fmt: skip
def test_a_contradiction_is_flagged(level: int, changes: dict[str, Any], flag: str) -> None:
    assert flags_of(level, **changes) == (flag,)


@pytest.mark.parametrize(
    ("level", "changes"),
    [
        (3, {}),
        (3, {"characters": (), "others": 1}),
        (3, {"characters": (), "others": None}),
        (3, {"characters": ("Ponyo",), "others": 0, "actor": "Ponyo"}),
        (3, {"characters": (), "others": 0, "S": "train"}),
        (3, {"characters": ("Ponyo",), "others": 1, "actor": "girl", "SC": 1}),
        (3, {"characters": ("Ponyo", "Sosuke"), "others": 0, "actor": "Ponyo", "SC": 1}),
        (3, {"MA": "violently"}),
        (4, {"MA": "quickly"}),
        (1, {"MA": "barely"}),
        (5, {"MA": "happily"}),
    ],
)
def test_a_caption_without_contradiction_is_not(level: int, changes: dict[str, Any]) -> None:
    assert flags_of(level, **changes) == ()


def test_earlier_flags_are_kept() -> None:
    assert flags_of(5, flags=("characters unknown: no reply",)) == (
        "characters unknown: no reply",
        "adverb against level: slowly at level 5",
    )


def test_a_character_in_one_clip_only_of_a_scene_is_flagged() -> None:
    seen = [("A",), ("A", "B"), ("A",), ("B",), ("C",), None, ("C",), (), ("D",), ("D",)]
    scenes = [0, 0, 0, 1, 1, 2, 2, 2, 2, 2]
    clips = [records.clip(start_seconds=2.0 * number, scene=scene) for number, scene in enumerate(scenes)]
    captions = [
        Caption(clip_id=clip.clip_id, source="model", characters=names) for clip, names in zip(clips, seen, strict=True)
    ]
    rows = flagged(captions, clips, dict.fromkeys((clip.clip_id for clip in clips), 3))
    assert {number: row.flags for number, row in enumerate(rows) if row.flags} == {
        1: ("character once in scene: B is in no other clip of scene 0",),
        6: ("character once in scene: C is in no other clip of scene 2",),
    }
    assert kinds_of(rows[1]) == ["character once in scene"]
