"""Captions by rules: measured facts and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.rules import ADVERBS, rule_caption
from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import CaptionSettings
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
        assert (caption.source, caption.MD, caption.EV, caption.fault) == ("rules", "move", None, None)
        unknown = (caption.S, caption.SC, caption.ET, caption.ST, caption.characters, caption.raw_who, caption.raw_what)
        assert unknown == (None,) * 7
    assert not perform(rules_stage(), folder)


@pytest.mark.parametrize(
    ("scope", "camera", "drawings", "phrase", "adverb"),
    [(0, 0, 1, "stay still", None), (4, 3, 16, "move with the camera", "slightly"), (4, 2, 16, "move", "slightly")],
)
def test_rules_distinguish_still_moving_and_camera_motion(
    scope: float, camera: float, drawings: int, phrase: str, adverb: str | None
) -> None:
    motion = records.motion("c", scope, camera_px=camera, unique_frames=drawings)
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
