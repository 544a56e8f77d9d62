"""Rules captioner: captions from measurements alone, without a model.

It states whether the picture and the camera move (tables looks and motion), an adverb for the motion level, and night
or day where the light is unambiguous. Everything that cannot be measured (characters, actions, emotions) stays null,
and the caption's source is `rules`, so it is not mistaken for a description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core.progress import Progress
from pipeline.core.records import Caption, Clip, Looks, Motion
from pipeline.core.store import FilmFolder

RULES_VERSION = 1
ADVERBS = {1: "barely", 2: "slightly", 3: "moderately", 4: "strongly", 5: "intensely"}
"""Adverb of each motion level."""

_CAMERA_SHARE = 0.6
_NIGHT_LIGHT, _NIGHT_DARK_SHARE = 40.0, 0.5
_DAY_LIGHT, _DAY_DARK_SHARE = 110.0, 0.1


@dataclass(frozen=True)
class RulesCaptioner:
    """Captioner from facts: offline, free and deterministic."""

    def ingredients(self) -> dict[str, Any]:
        """Version of the rules."""
        return {"captioner": "rules", "rules": RULES_VERSION}

    def captions(
        self, folder: FilmFolder, clips: Sequence[Clip], levels: Mapping[str, int | None], progress: Progress
    ) -> list[Caption]:
        """Return a caption for every clip, from the film's tables looks and motion."""
        looks = {row.clip_id: row for row in folder.read("looks", Looks)}
        motions = {row.clip_id: row for row in folder.read("motion", Motion)}
        rows = [rule_caption(c.clip_id, levels[c.clip_id], looks.get(c.clip_id), motions.get(c.clip_id)) for c in clips]
        progress(len(rows), len(rows))
        return rows


def rule_caption(clip_id: str, level: int | None, looks: Looks | None, motion: Motion | None) -> Caption:
    """Return the caption for the facts of one clip; a missing fact leaves its tags null."""
    moves = _motion_phrase(motion) if motion else None
    # no motion, so no manner of motion
    manner = ADVERBS[level] if level and moves not in (None, _STILL) else None
    return Caption(clip_id=clip_id, source="rules", MD=moves, MA=manner, EV=_time_of_day(looks) if looks else None)


_STILL = "stay still"


def _motion_phrase(motion: Motion) -> str:
    if motion.scope_px == 0 or motion.unique_frames <= 1:
        return _STILL
    if motion.camera_px >= _CAMERA_SHARE * motion.scope_px:
        return "move with the camera"
    return "move"


def _time_of_day(looks: Looks) -> str | None:
    """Return night or day if light and shadows agree; a dim room or a grey dusk is neither."""
    if looks.light <= _NIGHT_LIGHT and looks.dark_share >= _NIGHT_DARK_SHARE:
        return "night"
    if looks.light >= _DAY_LIGHT and looks.dark_share <= _DAY_DARK_SHARE:
        return "day"
    return None
