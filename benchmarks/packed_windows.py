"""Packed windows against windows with one target: held-out loss of the game model at equal targets, over seeds.

    make bench-windows DATA=data/ OUT=windows/ [FROM=CHECKPOINT] [STEPS=300]

OUT/start            untrained checkpoint, unless FROM names one with a trained shot encoder
OUT/features         encoded clips, shared by the runs
OUT/WAY-SEED         phase b of a run

Both ways have the same steps, and per step as many targets on average: a packed window has one in each of its turns.
The same command resumes it. With an untrained shot encoder, the shot tokens to predict are those of random networks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from flows.console.progress import TrainBars
from models.untrained import new_checkpoint
from training.config import Recipe, WindowSettings
from training.data.windows import Windows
from training.recipes import merged, read_recipe
from training.run import TrainingRun
from training.run_folder import RunFolder
from training.trainer import TRAINED

WAYS = ("nested", "packed")
FIGURES = ("loss", "state", "shot_tokens", "loss_without_past")
"""Figures of the validation of phase b that the table has."""


@dataclass(frozen=True)
class Run:
    """Finished run: its way and seed, and its figures on held-out windows."""

    way: str
    seed: int
    targets: float
    """Targets of a step, on average."""
    figures: dict[str, float]


def recipe_of(base: Recipe, way: str, seed: int, steps: int, windows: int, targets: float) -> Recipe:
    """Return a recipe of phase b alone.

    Args:
        windows: packed windows in a step.
        targets: targets of a packed window, on average.
    """
    packed = way == "packed"
    loop = {"steps": steps, "seed": seed, "batch_size": windows if packed else round(windows * targets)}
    loop |= {"rate_warm_up": steps // 10, "validate_every": steps, "save_every": steps, "snapshot_every": 0}
    none = {"steps": 0}
    changes = {
        "shot": {"warm_up": none, "joint": none},
        "game": {"loop": loop, "windows": {"packed": packed}},
        "validation": {"clips": 64, "games": 0},
    }
    return Recipe.model_validate(merged(base.model_dump(), changes))


def measured_runs(
    data: str, out: Path, base: Recipe, start: Path | None, steps: int, windows: int, seeds: Sequence[int]
) -> list[Run]:
    """Train each way with each seed, and return the figures; arguments as `recipe_of`."""
    bars = TrainBars()
    if start is None:
        start = out / "start"
        if not start.exists():
            new_checkpoint(start, base.model, say=bars.say)
    found = []
    with bars.shown():
        for seed in seeds:
            for way in WAYS:
                folder = RunFolder(out / f"{way}-{seed}", data, (), bars.say, bars.step, bars.feature, out / "features")
                targets = targets_of(folder, base.game.windows)
                chosen = recipe_of(base, way, seed, steps, windows, targets)
                result = TrainingRun(folder, chosen, start).game()
                note = json.loads((result / TRAINED).read_text())
                mean_targets = windows * targets if way == "packed" else chosen.game.loop.batch_size
                found.append(Run(way, seed, mean_targets, note["validation"]["game"]))
    return found


def targets_of(folder: RunFolder, settings: WindowSettings) -> float:
    """Return the mean number of targets of a packed window."""
    windows = Windows(folder.catalogs()["train"].turns, settings.model_copy(update={"packed": True}))
    targets: int = sum(turns * count for turns, count in enumerate(windows.lengths, start=1))
    return targets / len(windows)


def table_of(runs: Iterable[Run], steps: int) -> Table:
    """Return a row for each run, and the means and ranges of each way."""
    table = Table("windows", "seed", "targets a step", *FIGURES, title=f"phase b after {steps} steps, held-out windows")
    runs = sorted(runs, key=lambda run: (run.way, run.seed))
    for run in runs:
        table.add_row(run.way, str(run.seed), f"{run.targets:.1f}", *(f"{run.figures[name]:.4f}" for name in FIGURES))
    for way in WAYS:
        of_way = [run for run in runs if run.way == way]
        table.add_row(way, "mean", "", *_each(of_way, mean), style="bold")
        table.add_row(way, "range", "", *_each(of_way, lambda values: max(values) - min(values)))
    return table


def _each(runs: Sequence[Run], of: Callable[[list[float]], float]) -> list[str]:
    return [f"{of([run.figures[name] for run in runs]):.4f}" for name in FIGURES]


def main() -> None:
    """Train all runs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="dataset folder with a split `val`")
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--from", dest="start", type=Path, help="checkpoint whose shot encoder gives the shot tokens")
    parser.add_argument("--recipe", default="mini")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--windows", type=int, default=2, help="packed windows in a step")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    given = parser.parse_args()
    runs = measured_runs(
        given.data, given.out, read_recipe(given.recipe), given.start, given.steps, given.windows, range(given.seeds)
    )
    Console(width=110).print(table_of(runs, given.steps))


if __name__ == "__main__":
    main()
