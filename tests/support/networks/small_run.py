"""Training runs of a few steps on a dozen small clips, in this process or in processes of their own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.shared_folders import shared_folder
from training.config import Recipe
from training.recipes import merged, tiny
from training.run import TrainingRun
from training.run_folder import RunFolder

STEPS = 6
TRAINED = ("shot_encoder.safetensors", "shot_decoder", "game_model", "bases/transformer")


def small_dataset() -> Path:
    """Two films of eight clips, captioned, in shards of three; some are held out."""

    def make(folder: Path) -> None:
        dataset = make_dataset(folder, scenes=4, clips=2, captioner=MODEL)
        write_shards(dataset, ShardSettings(samples=3, val_share=0.3))

    return shared_folder("small-dataset", make)


def small_run(folder: Path, recipe: Recipe, source: Path | Sequence[str] | None = None, **options: Any) -> TrainingRun:
    """Training run on the small dataset, on another one, or on several."""
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
        "distill": {"guide": {**loop, "steps": 2}, "loop": loop, "generator_every": 2, "critic_rank": 4},
        "validation": {"denoising_steps": 2, "pictures": 0, "clips": 2},
    }
    return Recipe.model_validate(merged(merged(tiny().model_dump(), base), changes))


def start(out: Path, described: Recipe, *launcher: str, **environment: str) -> subprocess.Popen[str]:
    """Start all phases in processes of their own, which print each step; in a folder `sharded` they share weights."""
    written = out.with_suffix(".json")
    written.write_text(described.model_dump_json())
    command = [
        sys.executable,
        *launcher,
        "-m",
        "tests.support.networks.training_process",
        str(small_dataset()),
        str(out),
    ]
    return subprocess.Popen(
        [*command, str(written), *(["--sharded"] if "sharded" in out.name else [])],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        start_new_session=True,
    )  # fmt: skip


def train_through_kills(out: Path, described: Recipe, kills: Iterable[tuple[str, int]]) -> None:
    """Train all phases; kill the process after each of these steps of a phase, and start it again."""
    for phase, step in (*kills, (None, 0)):
        process = start(out, described)
        assert process.stdout
        for line in process.stdout:
            if phase and line.startswith(f"{phase} {step} "):
                os.killpg(process.pid, signal.SIGKILL)
                break
        process.communicate()
    assert process.returncode == 0


def weights(run: Path) -> dict[str, Tensor]:
    """All trained tensors of the last checkpoint of a run, by file and name."""
    result = run / "adapt" / "result"
    return {
        f"{path.relative_to(result)}:{name}": tensor
        for part in TRAINED
        for path in ([result / part] if (result / part).is_file() else sorted((result / part).glob("*.safetensors")))
        for name, tensor in load_file(path).items()
    }
