"""Rules: captions from measurements alone, and doubts about captions of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.rules import ADVERBS, flagged, kinds_of, rule_caption
from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import CaptionSettings
from pipeline.core.records import Caption
from pipeline.core.stage import NOTHING_PENDING, perform
from tests.support import records
from tests.support.media.painted_clips import captions_of, make_screened_film


def rules_stage() -> WriteCaptions:
    return WriteCaptions(CaptionSettings(), Cast())


def test_rules_state_measured_facts_only(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 6, levels=[1, 2, 3, 4, 5, None])
    assert rules_stage().pending(folder, current=False) == NOTHING_PENDING
    captions = captions_of(rules_stage(), folder)
    assert [caption.MA for caption in captions] == [*ADVERBS.values(), None]
    for caption in captions:
        assert (caption.source, caption.MD, caption.EV, caption.fault) == (
            "rules",
            "move before a still camera",
            None,
            None,
        )
        unknown = (caption.S, caption.SC, caption.ET, caption.ST, caption.characters, caption.raw_who, caption.raw_what)
        assert unknown == (None,) * 7
    assert not perform(rules_stage(), folder)


@pytest.mark.parametrize(
    ("scope", "camera", "drawings", "phrase", "adverb"),
    [
        (0, ("static", None), 1, "stay still", None),
        (4, ("static", None), 16, "move before a still camera", "slightly"),
        (4, (None, None), 16, "move", "slightly"),
        (4, ("pan", "left"), 16, "move while the camera pans left", "slightly"),
        (4, ("follow", "up"), 16, "move while the camera follows", "slightly"),
        (4, ("shake", None), 16, "move while the camera shakes", "slightly"),
    ],
)
def test_rules_say_of_the_camera_what_was_measured(
    scope: float, camera: tuple[str | None, str | None], drawings: int, phrase: str, adverb: str | None
) -> None:
    kind, direction = camera
    motion = records.motion("c", scope, camera_kind=kind, camera_direction=direction, unique_frames=drawings)
    caption = rule_caption("c", 2, None, motion)
    assert caption.EV is None
    assert [phrase, adverb] == [caption.MD, caption.MA]


@pytest.mark.parametrize(
    ("light", "dark_share", "time_of_day"),
    [(20, 0.8, "night"), (20, 0.2, None), (150, 0.0, "day"), (150, 0.3, None), (80, 0.2, None)],
)
def test_rules_name_night_and_day_only_in_clear_cases(light: float, dark_share: float, time_of_day: str | None) -> None:
    looks = records.looks("c", light=light, dark_share=dark_share)
    caption = rule_caption("c", 2, looks, None)
    assert time_of_day == caption.EV
    assert caption.MD is caption.MA is None


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


@pytest.mark.parametrize(
    ("sentence", "flag"),
    [
        ("A girl runs.", "short sentence: 3 words"),
        ("Go go go go and go.", "repetitive sentence: go is 5 of 6 words"),
        ("In the sea, in the sea, in the sea, she swims.", "repetitive sentence: in the sea, comes 3 times"),
        ("A fish and a cat see a fish and a cat and a bird see a cat and a fish.",
         "repetitive sentence: 6 different words of 20"),
    ],
)  # fmt: skip
def test_a_degenerate_sentence_is_flagged(sentence: str, flag: str) -> None:
    assert flags_of(sentence=sentence) == (flag,)


@pytest.mark.parametrize(
    "sentence", ["A girl runs home.", "Row, row, row the boat.", "The cat sees the dog and the dog sees the cat."]
)
def test_a_plain_sentence_is_not(sentence: str) -> None:
    assert flags_of(sentence=sentence) == ()


def test_a_sentence_equal_to_that_of_a_neighbour_is_flagged_in_both_clips() -> None:
    said = ["The girl runs home.", "the girl runs HOME!", None, "The girl runs home.", "A cat sleeps in the sun."]
    clips = [records.clip(start_seconds=2.0 * number) for number in range(len(said))]
    captions = [
        Caption(clip_id=clip.clip_id, source="model", sentence=text) for clip, text in zip(clips, said, strict=True)
    ]
    once = flagged(captions, clips, dict.fromkeys((clip.clip_id for clip in clips), 3))
    rows = flagged(once, clips, dict.fromkeys((clip.clip_id for clip in clips), 3))
    assert {number: row.flags for number, row in enumerate(rows) if row.flags} == {
        0: (f"sentence of neighbour: as {clips[1].clip_id}",),
        1: (f"sentence of neighbour: as {clips[0].clip_id}",),
    }
