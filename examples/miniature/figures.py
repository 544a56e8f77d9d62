"""Figures of shown turns with intervals: what the recogniser names correctly, the motion level drawn, and the states.

A turn is `as asked` if who, where and what follow the instruction. Time of day, raincoats and flags follow from earlier
turns. A raincoat or a flag, or that there is none, is told if a turn that the game model still sees tells it.

Turns of a game depend on each other (many scenes have two clips of one instruction). So the intervals treat games, not
turns, as the sample, with Student's t for their number.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from examples.miniature.dataset import CONFIG
from examples.miniature.games import ScriptedTurn, Shown
from examples.miniature.recogniser_network import Named, Recogniser
from examples.miniature.sharpness import edge_strength
from pipeline.reviews.intervals import CONFIDENCE, wilson
from pipeline.stages.motion import measure_frames, open_optical_flow
from pipeline.stages.motion_levels import PUBLISHED_EDGES, level_of
from training.evaluation.metrics.features import with_pixels
from training.phases.collapse import saturation

Figure = Mapping[str, Any]
"""Number of turns and of games, mean over the turns, and the ends of its 95% interval (None for a single game)."""


Values = Sequence[tuple[Hashable, Mapping[str, float]]]
"""The game of each turn, and the value of each of its fields."""


def values_by_game(shown: Sequence[Shown], recogniser: Recogniser, window: int) -> Values:
    """Return the values of turns, in order.

    Args:
        window: turns in the game model's context, the one to predict included.
    """
    names = recogniser.name(torch.from_numpy(np.stack([each.frames_THWC for each in shown])))
    return [(each.scripted.game, values_of(each, named, window)) for each, named in zip(shown, names, strict=True)]


def figures_of(turns: Values) -> dict[str, Figure]:
    """Return a figure for each field; turns that leave a field open do not count."""
    found: dict[str, list[tuple[Hashable, float]]] = {}
    for game, fields in turns:
        for field, value in fields.items():
            found.setdefault(field, []).append((game, value))
    return {field: figure(values) for field, values in found.items()}


def changes_of(first: Values, last: Values, fields: Sequence[str]) -> dict[str, Figure]:
    """Return how far the last turns of games differ from their first ones; a turn of each is a pair.

    Args:
        fields: those that every turn has.
    """
    pairs = [(game, one, other) for (game, one), (_, other) in zip(first, last, strict=True)]
    return {
        field: figure([(game, float(other[field]) - float(one[field])) for game, one, other in pairs])
        for field in fields
    }


def values_of(shown: Shown, named: Named, window: int) -> dict[str, float]:
    """Return for every field whether it is correct, and the errors of levels and the seconds."""
    facts, drawn = shown.facts, drawn_level(shown.frames_THWC)
    asked = named.follows(facts.characters, facts.place, facts.motion)
    return {
        **asked,
        **{f"as asked, {kind}": asked["as asked"] for kind in _kinds(shown.scripted)},
        "by whom": named.actor == facts.actor,
        **_of_history(shown.scripted, named, window),
        "level predicted": shown.level == facts.level,
        "level drawn": drawn == facts.level,
        "level drawn, error": abs(drawn - facts.level),
        "states": shown.state == facts.state,
        "saturation": float(saturation(torch.from_numpy(shown.frames_THWC))),
        "sharpness": edge_strength(shown.frames_THWC),
        "seconds": shown.seconds,
    }


def _kinds(turn: ScriptedTurn) -> Sequence[str]:
    """Return the number of characters of a turn's scene, its level, and its held-out pairs.

    Of scenes without such pairs, also whether the training data has the scene.
    """
    facts = turn.facts
    pairs = facts.held_out or (("repeated scene",) if turn.repeated else ("new scene",))
    return ("one character" if len(facts.characters) == 1 else "two characters", f"level {facts.level}", *pairs)


def _of_history(turn: ScriptedTurn, named: Named, window: int) -> dict[str, bool]:
    """Return what earlier turns have decided; a fact that the turn leaves open has no field."""
    facts = turn.facts
    hits = {"night" if not facts.time_named else "night, named": named.night == (facts.time_of_day == "night")}
    if facts.coats_last:
        kind = "raincoats" if facts.raincoats else "no raincoats"
        hits[f"{kind}{_told(turn.coats_age, window)}"] = named.raincoats == frozenset(facts.raincoats)
    if facts.shows_flag is not None:
        kind = "flag" if facts.shows_flag else "no flag"
        hits[f"{kind}{_told(turn.flag_age, window)}"] = named.flag == facts.shows_flag
    return hits


def _told(age: int, window: int) -> str:
    return ", told" if age < window else ", not told"


def drawn_level(frames_THWC: NDArray[np.uint8]) -> int:
    """Return the motion level as the pipeline measures it in clips of the dataset's size."""
    settings, clips = CONFIG.motion, CONFIG.clips
    gray_THW = np.stack([cv2.cvtColor(frame_HWC, cv2.COLOR_RGB2GRAY) for frame_HWC in frames_THWC])
    scaled_THW = with_pixels(gray_THW, clips.width * clips.height)
    [motion] = measure_frames([scaled_THW], open_optical_flow(settings), settings.background_px)
    return level_of(motion.scope_px, settings.edges or PUBLISHED_EDGES)


def figure(values: Sequence[tuple[Hashable, float]]) -> Figure:
    """Return the mean with its 95% interval: Wilson's for hits, the normal interval for other values.

    Both take Student's t for the number of games. Wilson's interval takes an effective size of at most the number of
    turns, which follows from how much the games differ.

    Args:
        values: the game and the value of each turn; one or more.
    """
    games = {game: number for number, game in enumerate(dict.fromkeys(game for game, _ in values))}
    numbers_T, values_T = [games[game] for game, _ in values], [float(value) for _, value in values]
    mean = float(np.mean(values_T))
    found = {"turns": len(values), "games": len(games), "mean": mean, "low": None, "high": None}
    if len(games) == 1:
        return found
    excess_G = np.bincount(numbers_T, values_T) - mean * np.bincount(numbers_T)
    variance = len(games) / (len(games) - 1) * float(np.square(excess_G).sum()) / len(values) ** 2
    deviations = float(stdtrit(len(games) - 1, (1 + CONFIDENCE) / 2))
    if all(isinstance(value, bool) for _, value in values):
        size = min(len(values), mean * (1 - mean) / variance) if variance else len(values)
        low, high = wilson(mean, size, deviations)
    else:
        low, high = mean - deviations * math.sqrt(variance), mean + deviations * math.sqrt(variance)
    return found | {"low": low, "high": high}
