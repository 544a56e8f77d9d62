"""Repeats found in composed seasons: openings, endings, recaps and previews in other encodings, under other credits.

    .venv/bin/python -m benchmarks.season                       four seasons of 24 episodes of three minutes; hours
    .venv/bin/python -m benchmarks.season --episodes 6 --chunks 3 --seeds 0 1       smaller ones
    .venv/bin/python -m benchmarks.season --seeds 2 --films season                  only write the episodes

Episodes are 256x144, encoded at CRF 18 to 38, and go through the stages crop, cut and looks, without text. Seasons of
seeds from 2 on are kept aside. The CPU of the comparison is a share of the CPU of these stages.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.season.compose import (
    CRFS,
    THEME_SECONDS,
    Episode,
    Truth,
    compose,
    read_source,
    truth_of,
    write_episode,
)
from examples.bunny.film import ATTRIBUTION, fetch_bunny
from pipeline.core.config import (
    ClipSettings,
    CropSettings,
    FilmSettings,
    LooksSettings,
    SceneSettings,
    SelectionSettings,
)
from pipeline.core.records import Clip, make_film_id
from pipeline.core.stage import perform
from pipeline.core.store import Dataset, FilmFolder
from pipeline.plan.seasons import compare_episodes
from pipeline.publish.shards import file_sha256
from pipeline.stages.crop import FindCrop
from pipeline.stages.cut import Cut
from pipeline.stages.looks import MeasureLooks
from pipeline.stages.probe import probe
from pipeline.stages.stretches import stretches_of

SIZE = (256, 144)
STEP_SECONDS = 0.01


@dataclass(frozen=True)
class Score:
    """Seconds of a season, right and wrong, and errors of the bounds that were found."""

    repeated: float
    found: float
    other: float
    marked: float
    """Seconds marked among the others."""
    errors: tuple[float, ...]
    clips: tuple[int, int, int, int]
    """Clips that repeat others, those of them that are left out, clips of the story, and those of them left out."""

    @classmethod
    def of(cls, folders: Sequence[FilmFolder], truths: Sequence[Sequence[Truth]]) -> Score:
        """Compare what is left out of each episode, by default settings, with its truth."""
        sums, clips = np.zeros(4), np.zeros(4, int)
        errors: list[float] = []
        for number, (folder, truth) in enumerate(zip(folders, truths, strict=True)):
            film = folder.film
            wanted = [(one.start_seconds, one.end_seconds) for one in truth if number or one.kind != "repeated"]
            stretches = stretches_of(film, SelectionSettings())
            found = [(one.start_seconds, one.end_seconds) for one in stretches]
            for clip in folder.read("clips", Clip):
                span = clip.start_seconds, clip.end_seconds
                is_repeat = any(start - 0.1 <= span[0] and span[1] <= end + 0.1 for start, end in wanted)
                is_story = not any(start < span[1] and span[0] < end for start, end in wanted)
                is_out = any(stretch.holds(*span) for stretch in stretches)
                clips += [is_repeat, is_repeat and is_out, is_story, is_story and is_out]
            time_T = np.arange(0, film.duration_seconds, STEP_SECONDS)
            is_T, marked_T = _inside(time_T, wanted), _inside(time_T, found)
            sums += [is_T.sum(), (is_T & marked_T).sum(), (~is_T).sum(), (~is_T & marked_T).sum()]
            edges = np.flatnonzero(np.diff(marked_T.astype(int))) * STEP_SECONDS
            bounds = [bound for stretch in wanted for bound in stretch if 0 < bound < film.duration_seconds - 0.1]
            errors += [float(np.abs(edges - bound).min(initial=9.0)) for bound in _outer(bounds)]
        repeated, right, other, wrong = (float(value) * STEP_SECONDS for value in sums)
        a, b, c, d = clips.tolist()
        return cls(repeated, right, other, wrong, tuple(errors), (a, b, c, d))


def _outer(bounds: Iterable[float]) -> list[float]:
    """The bounds at which nothing repeated goes on: those that only one stretch has."""
    listed = [round(bound, 3) for bound in bounds]
    return [bound for bound in listed if listed.count(bound) == 1]


def _inside(time_T: NDArray[np.floating[Any]], stretches: Iterable[tuple[float, float]]) -> NDArray[np.bool_]:
    inside_T = np.zeros(len(time_T), bool)
    for start, end in stretches:
        inside_T |= (start <= time_T) & (time_T < end)
    return inside_T


def measured(path: Path, dataset: Dataset) -> FilmFolder:
    """Cut an episode and measure the looks of its clips."""
    sha256 = file_sha256(path)
    film = probe(path, make_film_id(path.name, sha256), sha256).model_copy(update={"series": "Kiki", "season": 1})
    folder = dataset.folder(film.film_id)
    folder.save_film(film.model_copy(update={"episode": int(path.stem)}))
    for stage in (
        FindCrop(CropSettings(enabled=False)),
        Cut(FilmSettings(fields="keep"), SceneSettings(), ClipSettings(width=144, height=96), threads=1),
        MeasureLooks(LooksSettings(text=False), threads=1),
    ):
        perform(stage, folder)
    return folder


def write_season(seed: int, season: Sequence[Episode], source_THWC: NDArray[np.uint8], root: Path) -> list[Path]:
    """Encode the episodes as `01.mkv` and so on, each at its quality."""
    root.mkdir(parents=True, exist_ok=True)
    paths = [root / f"{number:02d}.mkv" for number in range(1, len(season) + 1)]
    for number, (path, episode) in enumerate(zip(paths, season, strict=True)):
        write_episode(path, source_THWC, episode, random.Random(100 * seed + number).randint(*CRFS))
    return paths


def run(seed: int, season: Sequence[Episode], source_THWC: NDArray[np.uint8], root: Path) -> tuple[Score, float, float]:
    """Write, measure and compare a season; return its score, and CPU seconds of the stages and the comparison."""
    dataset, paths = Dataset(root / "data"), write_season(seed, season, source_THWC, root)
    started = cpu_seconds()
    folders = [measured(path, dataset) for path in paths]
    done = cpu_seconds()
    compare_episodes(dataset, [folder.film_id for folder in folders])
    score = Score.of(folders, [truth_of(episode) for episode in season])
    return score, done - started, cpu_seconds() - done


def cpu_seconds() -> float:
    """CPU seconds of this process, its children and their finished children: films are cut in a child of a server."""
    processes = [psutil.Process(), *psutil.Process().children()]
    return sum(sum(process.cpu_times()[:4]) for process in processes)


def main() -> None:
    """Print a row for each season."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3], help="seasons to compose")
    parser.add_argument("--episodes", type=int, default=24, help="episodes of a season")
    parser.add_argument("--chunks", type=int, default=5, help="chunks of story in an episode, 20 seconds each")
    parser.add_argument(
        "--theme-seconds", type=float, nargs=2, default=THEME_SECONDS, help="opening and ending, up to 90 seconds each"
    )
    parser.add_argument("--films", type=Path, help="only write the episodes, to a folder for each seed in this one")
    options = parser.parse_args()
    console, table = (
        Console(width=150),
        Table(
            "season", "repeated", "others marked", "repeated clips", "other clips", "bounds within .5 s", "worst", "CPU"
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        source_THWC = read_source(fetch_bunny(), SIZE, Path(folder) / "source.raw")
        for seed in options.seeds:
            season = compose(seed, options.episodes, options.chunks, options.theme_seconds)
            if options.films:
                write_season(seed, season, source_THWC, options.films / str(seed))
                continue
            score, stages, comparison = run(seed, season, source_THWC, Path(folder) / str(seed))
            near = sum(error <= 0.5 for error in score.errors)
            table.add_row(
                f"{seed}, {'kept aside' if seed > 1 else 'tuned on'}",
                f"{100 * score.found / score.repeated:.2f}% of {score.repeated:.0f} s",
                f"{100 * score.marked / score.other:.2f}% of {score.other:.0f} s",
                f"{score.clips[1]} of {score.clips[0]}",
                f"{score.clips[3]} of {score.clips[2]}",
                f"{near} of {len(score.errors)}",
                f"{max(score.errors):.2f} s",
                f"{100 * comparison / stages:.1f}% of {stages:.0f} s",
            )
    if not options.films:
        console.print(table)
    console.print(ATTRIBUTION)


if __name__ == "__main__":
    main()
