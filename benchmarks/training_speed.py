"""Benchmark of the training loop at `tiny` on a CPU: examples a second, share of waiting, features a clip.

    make bench-training RECIPE=tiny

All phases run on painted clips, by the loop and the feature cache that any run uses. Each phase's first steps are left
out; `make bench-training` without RECIPE has memory and time of a step at full size.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from examples.world.learning_films import FIRST, SECOND, write_films
from training.config import Recipe
from training.recipes import merged, tiny
from training.run import TrainingRun
from training.run_folder import RunFolder

PHASES = ("warm-up", "joint", "game", "adapt")
STEPS = 30
_LEFT_OUT = 5
"""First steps of a phase, which allocate and warm caches."""


def recipe() -> Recipe:
    """Return `tiny` with few steps, no pictures, and windows as long as the painted films allow."""
    few = {"steps": STEPS, "validate_every": STEPS, "save_every": STEPS}
    changes = {
        "autoencoder": None,
        "shot": {"warm_up": few, "joint": few},
        "game": {"loop": few, "windows": {"most_turns": 2}},
        "adapt": {"loop": few},
        "validation": {"pictures": 0, "clips": 1},
    }
    return Recipe.model_validate(merged(tiny().model_dump(), changes))


def clips_a_second(run: TrainingRun) -> float:
    """Encode all clips with the frozen networks, and return how many a second."""
    run.start()
    clips = sum(len(catalog.turns) for catalog in run.run_folder.catalogs().values())
    started = time.perf_counter()
    run.features()
    return clips / (time.perf_counter() - started)


def scalars(log: Path, name: str) -> list[float]:
    """Return the values of a scalar from a TensorBoard log, in order."""
    return [event.value for event in EventAccumulator(str(log), size_guidance={"scalars": 0}).Reload().Scalars(name)]


def main() -> None:
    """Entry point."""
    torch.set_num_threads(1)
    table = Table("phase", "examples a second", "waiting for examples", box=None)
    with TemporaryDirectory() as folder:
        data = write_films(Path(folder, "data"), [FIRST, SECOND])
        run = TrainingRun(RunFolder(Path(folder, "run"), str(data)), recipe())
        encoded = clips_a_second(run)
        run.shot()
        run.game()
        run.adapt()
        for phase in PHASES:
            log = run.run_folder.folder / "log" / phase
            speed, waiting = (median(scalars(log, name)[_LEFT_OUT:]) for name in ("examples_a_second", "waiting"))
            table.add_row(phase, f"{speed:.2f}", f"{waiting:.1%}")
    console = Console(width=100)
    console.print(f"features: {encoded:.2f} clips a second")
    console.print(table)


if __name__ == "__main__":
    main()
