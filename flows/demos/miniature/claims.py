"""Claims step: games of the trained model along held-out stories, named by the judge.

OUT/claims.json    by data set: share of turns of which a field is as asked, with its 95 % interval; the same without
                   past turns, for the recorded clips (the judge's own accuracy), and by chance

A game plays all clips of a story in order: a turn has the instruction of its clip and the model's own past. What the
instruction asks for is who, where and what; time of day, raincoats and flags follow from earlier turns. By chance is
what the judge names in a clip of another turn, drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from flows.console.terminal import say
from flows.demos.miniature.dataset import CONFIG
from flows.demos.miniature.judge_network import Judge, Named
from flows.demos.miniature.reconstructions import SETS
from flows.demos.miniature.truth import SceneFacts, Truths
from models.engine import Engine
from models.engine_options import SHIPPED_GUIDANCE, SHIPPED_STEPS, EngineOptions
from models.turns import GameState, turn_seed
from pipeline.core.atomic import write_json
from pipeline.core.progress import watched
from pipeline.reviews.audit.intervals import wilson
from pipeline.stages.motion import measure_frames, open_optical_flow
from pipeline.stages.motion_levels import PUBLISHED_EDGES, level_of
from training.data.shards import open_shards
from training.data.turns import PackedTurn, read_turns
from training.evaluation.metrics.features import with_pixels

_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class Shown:
    """Turn of a game, or a recorded clip in its place."""

    facts: SceneFacts
    frames_THWC: NDArray[np.uint8]
    level: int
    """Motion level by the game model, or measured in the data."""


def measure_claims(out: Path, seed: int = 0) -> None:
    """Play the held-out stories with and without past turns, and write what the judge names."""
    model, judge = out / "model" / "adapt" / "result", Judge.open(out / "judge" / "result")
    engine = Engine.load(model, EngineOptions("cpu", SHIPPED_STEPS, SHIPPED_GUIDANCE))
    truths, found = Truths.read(out), {}
    for name, data, split in SETS:
        turns = list(read_turns(open_shards(out / data, split)))
        shown = {
            "recorded": [_recorded(turn, truths, engine) for turn in turns],
            "played": list(_played(turns, truths, engine, seed)),
            "played without past": list(_played(turns, truths, engine, seed, past=False)),
        }
        found[name] = {kind: figures_of(each, judge) for kind, each in shown.items()}
        found[name]["by chance"] = figures_of(_exchanged(shown["played"], seed), judge)
        say(f"claims, {name}: as asked {found[name]['played']['as asked']['share']:.1%} of {len(turns)} turns")
    write_json(out / "claims.json", found)


def _recorded(packed: PackedTurn, truths: Truths, engine: Engine) -> Shown:
    shape, sample = engine.config.shot_decoder, packed.turn.sample
    frames = packed.frames(shape.height, shape.width, shape.frames).numpy()
    return Shown(truths.of(sample), frames, sample.motion.level)


def _played(
    turns: Sequence[PackedTurn], truths: Truths, engine: Engine, seed: int, *, past: bool = True
) -> Iterator[Shown]:
    """Yield the turns of a game along each story."""
    pairs = [(turn, truths.of(turn.turn.sample)) for turn in turns]
    for (film, story), found in groupby(pairs, lambda pair: (pair[1].film, pair[1].story)):
        state, scenes = GameState(), list(found)
        with watched(f"{film}, story {story}", "with past" if past else "without past") as watch:
            for turn, facts in scenes:
                watch(state.turns, len(scenes))
                before = state if past else replace(state, window=())
                seed_here = turn_seed(seed, state.turns + 1)
                played, state = engine.next_turn(before, turn.turn.instruction, seed_here)
                yield Shown(facts, played.frames_THWC, played.state.level)


def _exchanged(shown: Sequence[Shown], seed: int) -> list[Shown]:
    """Give every turn the frames and the level of another one."""
    others = random.Random(seed).sample(shown, len(shown))
    return [replace(other, facts=each.facts) for each, other in zip(shown, others, strict=True)]


def figures_of(shown: Sequence[Shown], judge: Judge) -> Mapping[str, Mapping[str, Any]]:
    """Return the share of right turns by field, and of motion levels; fields left open by a turn are not counted."""
    right: dict[str, list[bool]] = {}
    for start in range(0, len(shown), _AT_ONCE):
        part = shown[start : start + _AT_ONCE]
        names = judge.name(torch.from_numpy(np.stack([each.frames_THWC for each in part])))
        for each, named in zip(part, names, strict=True):
            for field, hit in hits_of(each, named).items():
                right.setdefault(field, []).append(hit)
    return {field: _share(hits) for field, hits in right.items()}


def hits_of(shown: Shown, named: Named) -> dict[str, bool]:
    """Return what is as it should be, by field; a fact that the turn leaves open has no field."""
    facts = shown.facts
    asked = {
        "who": named.who == frozenset(facts.characters),
        "where": named.where == facts.place,
        "what": named.what == facts.motion,
    }
    hits = {"as asked": all(asked.values()), **asked, "by whom": named.actor == facts.actor}
    hits["night" if not facts.time_named else "night, named"] = named.night == (facts.time_of_day == "night")
    if facts.coats_last:
        hits["raincoats"] = named.raincoats == frozenset(facts.raincoats)
    if facts.shows_flag is not None:
        hits["flag" if facts.flag else "no flag"] = named.flag == facts.shows_flag
    drawn = _drawn_level(shown.frames_THWC)
    hits["level predicted"], hits["level drawn"] = shown.level == facts.level, drawn == facts.level
    hits["level drawn, or a neighbour"] = abs(drawn - facts.level) <= 1
    return hits


def _drawn_level(frames_THWC: NDArray[np.uint8]) -> int:
    """Return the motion level as the pipeline measures it in clips of the data set's size."""
    settings, clips = CONFIG.motion, CONFIG.clips
    gray_THW = np.stack([cv2.cvtColor(frame_HWC, cv2.COLOR_RGB2GRAY) for frame_HWC in frames_THWC])
    scaled_THW = with_pixels(gray_THW, clips.width * clips.height)
    [motion] = measure_frames([scaled_THW], open_optical_flow(settings), settings.background_px)
    return level_of(motion.scope_px, settings.edges or PUBLISHED_EDGES)


def _share(hits: Sequence[bool]) -> dict[str, Any]:
    share = sum(hits) / len(hits)
    low, high = wilson(share, len(hits))
    return {"turns": len(hits), "share": share, "low": low, "high": high}
