"""Training runs of a few steps in processes of their own, to be killed, and the weights they end with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from tests.support.networks.small_run import small_dataset
from training.config import Recipe

TRAINED = ("shot_encoder.safetensors", "shot_decoder", "game_model", "bases/transformer")


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
