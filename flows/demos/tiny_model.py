"""Demo of the model, `make demo-model`: from a composed film to a game of five turns, on two cores in minutes.

    1. a film is composed and made into a data set with true labels OUT/dataset
    2. an untrained tiny checkpoint is written                      OUT/start
    3. its autoencoder is fitted to the clips                       OUT/autoencoder
    4. `animegamer train all`: shots, game, adaptation              OUT/run
    5. `animegamer play --game` with instructions of the film       OUT/game

After a kill, the same command resumes. The trained model has only memorised about 20 clips: the demo shows that every
part works and learns, not how good the method is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from flows.console.progress import Bars
from flows.console.terminal import say
from flows.console.training_bars import TrainBars
from flows.demos.commands import run_command
from flows.demos.labelled import build_labelled
from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.untrained import new_checkpoint
from training.data.shards import open_shards
from training.data.turns import read_texts
from training.phases.autoencoder import Fitted, fit_autoencoder

TURNS = 5
_AVERAGED = 10
"""Number of first and last steps of a phase whose mean loss is reported; one step's loss depends on its noise level."""
PHASES = ("warm-up", "joint", "game", "adapt")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo-model"), help="folder for everything")
    out: Path = parser.parse_args().out
    started = time.monotonic()
    say("1 of 5: the data set")
    with Bars().watching():
        data = build_labelled(out).root
    say("2 of 5: an untrained checkpoint")
    start = Checkpoint.open(out / "start") if (out / "start").exists() else new_checkpoint(out / "start", tiny_config())
    say("3 of 5: the autoencoder")
    fitted = _fit(start, data, out / "autoencoder")
    say("4 of 5: the three phases of training")
    trained = run_command(
        "demo-model", "train", "all", "--data", data, "--out", out / "run", "--from", fitted.checkpoint.folder
    )
    say(f"5 of 5: a game of {TURNS} turns")
    game = out / "game.txt"
    game.write_text("\n".join(instructions_of(data, TURNS)) + "\n", encoding="utf-8")
    film = run_command(
        "demo-model", "play", "--game", game, "--checkpoint", trained, "--out", out / "game", "--guidance", "1.5"
    )
    for line in report(out, fitted, Path(film)):
        say(line)
    say(f"{time.monotonic() - started:.0f} s in all; to play on: animegamer play --serve --checkpoint {trained}")


def instructions_of(data: Path, turns: int) -> list[str]:
    """Return the first instructions of the training split, one per scene."""
    scenes: dict[int, str] = {}
    for turn in read_texts(open_shards(data, "train")):
        scenes.setdefault(turn.sample.scene, turn.instruction)
    return list(scenes.values())[:turns]


def report(out: Path, fitted: Fitted, film: Path) -> list[str]:
    """Return lines with the measurements and the paths of the pictures and the film."""
    lines = [
        f"autoencoder: clips of {split} reconstructed with {fitted.before[split]:.1f} dB before, {after:.1f} dB after"
        for split, after in fitted.after.items()
    ]
    for phase in PHASES:
        losses = scalars(out / "run" / "log" / phase, "loss")
        if losses:
            lines.append(
                f"{phase}: loss {_mean(losses[:_AVERAGED]):.3f} at first, {_mean(losses[-_AVERAGED:]):.3f} last"
            )
    for name, split in (("state_right", "in training"), ("val/state_right", "held out")):
        if right := scalars(out / "run" / "log" / "game", name):
            lines.append(f"game: {_mean(right[-_AVERAGED:]):.0%} of the states right, {split}")
    looks = [sheets[-1] for phase in PHASES if (sheets := sorted((out / "run" / phase / "looks").glob("*/sheet.png")))]
    return [*lines, f"clips and their reconstructions: {fitted.sheet}",
            *(f"clips and drawings from their conditions: {sheet}" for sheet in looks),
            f"the game: {film}"]  # fmt: skip


def scalars(log: Path, name: str) -> list[float]:
    """Return the values of a scalar from a TensorBoard log, one per step in order; empty if it was not logged."""
    if not log.exists():  # the phase was omitted
        return []
    events = EventAccumulator(str(log), size_guidance={"scalars": 0}).Reload()
    found = events.Scalars(name) if name in events.Tags()["scalars"] else []
    return list({event.step: event.value for event in found}.values())  # a repeated step counts once


def _fit(start: Checkpoint, data: Path, folder: Path) -> Fitted:
    bars = TrainBars()
    with bars.shown():
        return fit_autoencoder(start, data, folder, watch=bars.step)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
