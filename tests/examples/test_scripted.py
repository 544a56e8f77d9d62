"""Data sets by script: captions follow the script, and a film that cannot be read is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.miniature.dataset import CONFIG, write_cast
from examples.miniature.scripted import CaptionByScript, ScriptedFilm, build_scripted
from examples.miniature.story import StoryScene
from examples.world.film import FPS
from examples.world.puppet_motions import Cue
from examples.world.truth import SceneTruth, Truth, truth_about
from pipeline.core.errors import UserError
from pipeline.core.records import Caption

SCENE = StoryScene(Cue("Mika", "wave", 2), "meadow", night=False, flagged=False, time_named=False, story=0)


def truth() -> Truth:
    return truth_about([SCENE.drawn("first")], FPS)


def captioned(clip_id: str, _: SceneTruth, level: int) -> Caption:
    return SCENE.caption(clip_id, level)


def captioned_later(clip_id: str, scene: SceneTruth, level: int) -> Caption:
    return captioned(clip_id, scene, level).model_copy(update={"ST": 1 if level == 5 else -1})


def test_another_script_gives_captions_anew_and_the_same_does_not() -> None:
    first, same, later = (
        CaptionByScript(truth(), script).ingredients() for script in (captioned, captioned, captioned_later)
    )
    assert first == same
    assert first["script"] != later["script"]


def test_a_film_that_cannot_be_read_is_refused_with_its_reason(tmp_path: Path) -> None:
    (broken := tmp_path / "broken.mp4").write_bytes(b"no film")
    cast = write_cast(tmp_path / "cast")
    with pytest.raises(UserError, match=r"broken\.mp4: .+"):
        build_scripted(tmp_path / "data", [ScriptedFilm(broken, truth(), captioned)], CONFIG, cast)
