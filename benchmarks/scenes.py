"""Scene benchmark: found boundaries and clips against the exact truth of three composed films, in three encodings.

    make bench-scenes
    .venv/bin/python -m benchmarks.scenes --transnetv2 ENVIRONMENT/bin/python

We tuned the thresholds on film A, held B out, and composed C after the last change. A found boundary is correct if it
lies within the frames of a transition, or at most two frames next to them; every transition counts once. A clip is
mixed if two scenes each fill a tenth or more of the pictures it shows; a mixed frame counts by the shares of both.

TransNetV2 is a yardstick (`benchmarks/transnetv2.py`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.transnetv2 import transnetv2
from examples.world.film import FPS, pictures_of
from examples.world.scene_changes import scene_changes
from examples.world.truth import TransitionTruth, Truth, truth_about
from examples.world.writer import write_film
from pipeline.core.atomic import replacing
from pipeline.core.records import Clip, Scene, Verdict
from pipeline.core.store import Dataset

SEEDS = {"A": 1, "B": 2, "C": 2026}
"""Seeds of the composed films."""
ENCODINGS = {
    "clean": ("libx264", "yuv420p", {"crf": "18", "preset": "superfast"}),
    "CRF 35": ("libx264", "yuv420p", {"crf": "35", "preset": "medium"}),
    "HEVC 10 bit": ("libx265", "yuv420p10le", {"crf": "35", "preset": "superfast"}),
}
BESIDE = 2
"""Frames by which a found boundary may lie next to a transition."""
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
    found_gradual: int


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
    hits, totals = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for transition in truth.transitions:
        kind = kind_of(truth, transition)
        totals[kind] += 1
        reach = range(transition.last_clean_before + 1 - BESIDE, transition.first_clean_after + BESIDE + 1)
        near = [number for number in left if found[number].frame in reach]
        if near:
            hits[kind] += 1
            left.remove(min(near, key=lambda number: abs(found[number].frame - transition.frame)))
    false = [found[number] for number in sorted(left)]
    return Score(
        hits=hits,
        totals=totals,
        false_cuts=tuple(one.frame for one in false if one.is_cut),
        false_gradual=tuple(one.frame for one in false if not one.is_cut),
        found_cuts=sum(one.is_cut for one in found),
        found_gradual=sum(not one.is_cut for one in found),
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


@dataclass(frozen=True)
class Result:
    """Result of one detector on one film."""

    letter: str
    encoding: str
    detector: str
    score: Score
    kept: int | None = None
    """Clips kept."""
    mixed_written: int | None = None
    """Mixed clips among all that were written."""
    mixed_kept: int | None = None
    pure_dropped: int | None = None
    """Clips dropped as `two scenes` that are not mixed."""


def compose(folder: Path, letter: str, encoding: str) -> Path:
    """Write a film in an encoding, unless an earlier run has; delete it after a change of the composer."""
    path = folder / f"{letter}-{encoding.replace(' ', '-')}.mp4".lower()
    if not path.exists():
        codec, pixel_format, options = ENCODINGS[encoding]
        pictures = pictures_of(scene_changes(SEEDS[letter]))
        with replacing(path) as temporary:
            write_film(temporary, pictures, fps=FPS, codec=codec, pixel_format=pixel_format, options=options)
    return path


def build(film: Path, folder: Path, letter: str, encoding: str, truth: Truth) -> Result:
    """Build a dataset of the film and compare its scenes and clips with the truth."""
    config = folder / "build.toml"
    config.write_text("[looks]\ntext = false\n[selection]\nnear_duplicates = false\n")
    with tempfile.TemporaryDirectory(dir=folder) as out:
        command = [sys.executable, "-m", "flows.cli", "build", str(film), "--out", out, "--config", str(config)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        [film_folder] = Path(out, "films").iterdir()
        tables = Dataset(Path(out)).folder(film_folder.name)
        scenes, clips = tables.read("scenes", Scene), tables.read("clips", Clip)
        verdicts = {row.clip_id: row for row in tables.read("verdicts", Verdict)}
    found = [Found(scene.start_frame, scene.opened_by == "cut") for scene in scenes if scene.opened_by != "start"]
    mixed = {clip.clip_id for clip in clips if is_mixed(truth, clip)}
    kept = {clip_id for clip_id, verdict in verdicts.items() if verdict.keep}
    two_scenes = {clip_id for clip_id, verdict in verdicts.items() if "two scenes" in verdict.reasons}
    return Result(
        letter=letter,
        encoding=encoding,
        detector="ours",
        score=score(truth, found),
        kept=len(kept),
        mixed_written=len(mixed),
        mixed_kept=len(mixed & kept),
        pure_dropped=len(two_scenes - mixed),
    )


def yardstick(film: Path, python: Path, letter: str, encoding: str, truth: Truth) -> Result:
    """Find boundaries by TransNetV2."""
    found = [Found(one.frame, one.is_cut) for one in transnetv2(film, python)]
    return Result(letter=letter, encoding=encoding, detector="TransNetV2", score=score(truth, found))


def table_of(results: Sequence[Result]) -> Table:
    """Table with a row for each detector and film."""
    columns = ("detector", "film", "encoding", *KINDS, "cuts R / P", "gradual R / P", "mixed kept / written", "kept")
    table = Table(*columns, title="found of each kind, recall and precision, mixed clips")
    for result in results:
        counts = [f"{result.score.hits[kind]}/{result.score.totals[kind]}" for kind in KINDS]
        mixed = f"{result.mixed_kept} / {result.mixed_written}" if result.kept is not None else ""
        kept = f"{result.kept}, {result.pure_dropped} pure dropped" if result.kept is not None else ""
        cuts, gradual = (_recall_and_precision(result.score, cuts=cuts) for cuts in (True, False))
        table.add_row(result.detector, result.letter, result.encoding, *counts, cuts, gradual, mixed, kept)
    return table


def _recall_and_precision(scored: Score, *, cuts: bool) -> str:
    kinds = [kind for kind in KINDS if ("cut" in kind) == cuts]
    recall = sum(scored.hits[kind] for kind in kinds) / sum(scored.totals[kind] for kind in kinds)
    found = scored.found_cuts if cuts else scored.found_gradual
    false = len(scored.false_cuts if cuts else scored.false_gradual)
    return f"{recall:.3f} / {1 - false / max(found, 1):.3f}"


def main() -> None:
    """Compose the films, measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("bench-scenes"), help="the films, kept between runs")
    parser.add_argument(
        "--transnetv2", metavar="PYTHON", type=Path, help="interpreter of its environment; without: ours alone"
    )
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    results = []
    films = list(product(SEEDS, ENCODINGS))
    for letter, encoding in track(films, "films", console=Console(stderr=True)):
        truth = truth_about(scene_changes(SEEDS[letter]), FPS)
        film = compose(given.folder, letter, encoding)
        results.append(build(film, given.folder, letter, encoding, truth))
        if given.transnetv2:
            results.append(yardstick(film, given.transnetv2, letter, encoding, truth))
    Console(width=200).print(table_of(results))


if __name__ == "__main__":
    main()
