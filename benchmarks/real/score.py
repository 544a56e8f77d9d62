"""Scores of one setting: found changes, clips that show two scenes, and what was lost of untouched film."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pipeline.stages
from benchmarks.real.stretches import Stretch, untouched
from benchmarks.real.truth import BLANK, Change, Film, is_mixed
from benchmarks.transnetv2 import transnetv2
from pipeline.core.config import ClipSettings
from pipeline.core.records import Clip, Scene, Verdict
from pipeline.core.store import Dataset

BESIDE_SECONDS = 0.1
"""Time by which a found boundary may lie beside a change: two frames of most films."""


@dataclass
class Score:
    """Counts of a group of films; each counter has a total and what was found of it.

    Attributes:
        found: changes found, by kind: `cut`, or a gradual one.
        changes: all changes, by kind.
        right: found boundaries that are a change, `cut` or `gradual`.
        boundaries: all that were found.
        mixed: kept clips that show two scenes.
        lost: clips of one scene that are dropped as `two scenes`.
        leaking: gradual changes that a mixed kept clip spans.
        gradual: all gradual changes.
        kept: number of kept clips.
        clean: number of clips of one scene.
        room: number of clips that fit between the changes.
        cut_off: how many of them a false boundary costs.
        stretches: parts of scenes that no kept clip shows.
    """

    found: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    boundaries: Counter[str] = field(default_factory=Counter)
    mixed: list[Path] = field(default_factory=list)
    lost: list[Path] = field(default_factory=list)
    leaking: list[Change] = field(default_factory=list)
    gradual: list[Change] = field(default_factory=list)
    kept: int = 0
    kept_seconds: float = 0.0
    clean: int = 0
    room: int = 0
    cut_off: int = 0
    stretches: list[Stretch] = field(default_factory=list)


def build(films: Sequence[Path], folder: Path, config: str) -> Dataset:
    """Build a dataset of the films, or return the one that an earlier run has built with the same stages."""
    out = folder / _stages()
    out.mkdir(parents=True, exist_ok=True)
    settings = out / "build.toml"
    settings.write_text(config)
    command = [sys.executable, "-m", "flows.cli", "build", *map(str, films), "--config", str(settings)]
    subprocess.run([*command, "--out", str(out / "data")], check=True, stdout=subprocess.DEVNULL)
    return Dataset(out / "data")


def _stages() -> str:
    """Return a hash of the stages' code and network: a film once cut stays, whatever a later detector finds."""
    folder = Path(pipeline.stages.__file__).parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".onnx"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:8]


def score(dataset: Dataset, films: Iterable[Film]) -> Score:
    """Compare the scenes and clips of the films with their truth; a film is known by the stem of its name."""
    folders = {Path(folder.film.name).stem: folder for folder in dataset.folders()}
    settings = ClipSettings.model_validate(dataset.record.config["clips"])
    result = Score()
    for film in films:
        folder = folders[film.path.stem]
        scenes = [scene for scene in folder.read("scenes", Scene) if scene.opened_by not in ("start", "damage")]
        boundaries = [(scene.start_seconds, scene.opened_by == "cut") for scene in scenes]
        between = untouched(folder, film.changes, _add_boundaries(result, film.changes, boundaries), settings)
        result.room, result.cut_off = result.room + between.room, result.cut_off + between.cut_off
        result.stretches += between.lost
        verdicts = {row.clip_id: row for row in folder.read("verdicts", Verdict)}
        result.gradual += [change for change in film.changes if not change.is_cut and change.kind != BLANK]
        spanned: set[Change] = set()
        for clip in folder.read("clips", Clip):
            spanned |= _add_clip(result, film.changes, clip, verdicts[clip.clip_id], folder.clip_path(clip.clip_id))
        result.leaking += [change for change in film.changes if change in spanned]
    return result


def yardstick(films: Iterable[Film], paths: Mapping[Path, Path], python: Path) -> Score:
    """Compare the boundaries that TransNetV2 finds in the films, as stored at these paths, with their truth."""
    result = Score()
    for film in films:
        marked = [(one.seconds, one.is_cut) for one in transnetv2(paths[film.path], python)]
        _add_boundaries(result, film.changes, marked)
    return result


def _add_boundaries(result: Score, changes: Sequence[Change], boundaries: Iterable[tuple[float, bool]]) -> list[float]:
    """Match boundaries, each its seconds and whether it is a cut, with the nearest change within reach, only once.

    Return the seconds of the boundaries that match no change.
    """
    left = list(boundaries)
    for _, is_cut in left:
        result.boundaries["cut" if is_cut else "gradual"] += 1
    for change in changes:
        result.changes[change.kind] += 1
        start, end = change.start_seconds - BESIDE_SECONDS, change.end_seconds + BESIDE_SECONDS
        if near := [one for one in left if start <= one[0] <= end]:
            nearest = min(near, key=lambda one: abs(one[0] - change.seconds))
            left.remove(nearest)
            result.found[change.kind] += 1
            result.right["cut" if nearest[1] else "gradual"] += 1
    return [seconds for seconds, _ in left]


def _add_clip(result: Score, changes: Sequence[Change], clip: Clip, verdict: Verdict, path: Path) -> set[Change]:
    """Count a clip; return the gradual changes that it spans, if it is kept and mixed."""
    mixed = is_mixed(changes, clip.start_seconds, clip.end_seconds)
    result.kept += verdict.keep
    result.kept_seconds += verdict.keep * (clip.end_seconds - clip.start_seconds)
    result.clean += not mixed
    if not mixed and "two scenes" in verdict.reasons:
        result.lost.append(path)
    if not (mixed and verdict.keep):
        return set()
    result.mixed.append(path)
    inside = {change for change in changes if clip.start_seconds < change.seconds < clip.end_seconds}
    return {change for change in inside if not change.is_cut}
