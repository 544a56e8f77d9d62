"""Data set of a dozen small clips, and recipes of a few steps, for tests of training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.shared_folders import shared_folder
from training.config import Recipe
from training.recipes import merged, tiny
from training.run import TrainingRun
from training.run_folder import RunFolder

STEPS = 6


def small_dataset() -> Path:
    """Two films of eight clips, captioned, in shards of three; some are held out."""

    def make(folder: Path) -> None:
        dataset = make_dataset(folder, scenes=4, clips=2, captioner=MODEL)
        write_shards(dataset, ShardSettings(samples=3, val_share=0.3))

    return shared_folder("small-dataset", make)


def small_run(folder: Path, recipe: Recipe, source: Path | Sequence[str] | None = None, **options: Any) -> TrainingRun:
    """Training run on the small data set, on another one, or on several."""
    data = str(source or small_dataset()) if source is None or isinstance(source, Path | str) else source
    return TrainingRun(RunFolder(folder, data, **options), recipe)


def small_recipe(**changes: Any) -> Recipe:
    """Recipe of a few steps of every phase, with changes such as `shot={"joint": {"steps": 9}}`."""
    loop = {
        "steps": STEPS,
        "batch_size": 2,
        "micro_batch": 1,
        "rate_warm_up": 1,
        "save_every": 2,
        "validate_every": 100,
        "learning_rate": 1e-3,
    }
    base = {
        "autoencoder": None,
        "model": {"shot_decoder": {"height": 32, "width": 48}},
        "shot": {"warm_up": {**loop, "steps": 2}, "joint": loop},
        "game": {"loop": loop, "windows": {"most_turns": 3}},
        "adapt": {"loop": loop},
        "validation": {"denoising_steps": 2, "pictures": 0, "clips": 2},
    }
    return Recipe.model_validate(merged(merged(tiny().model_dump(), base), changes))
