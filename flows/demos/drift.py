"""Demo of drift, `make demo-drift`: the tiny model of `make demo-model` plays games of 50 turns.

    1. games that go to and fro between the scenes of the model's film     OUT/games.jsonl
    2. `animegamer evaluate run`: the model, the same one without the      OUT/evaluation
       adaptation, and the untrained one

After a kill, the same command resumes. The model has only memorised its film, and plays instructions of it: the curves
show how such a model holds up turn after turn, not how one of the published size does.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from flows.console.terminal import say
from flows.demos.commands import run_command
from training.data.shards import open_shards
from training.data.turns import RecordedTurn, read_texts
from training.evaluation.benchmark import Panel, write_benchmark
from training.evaluation.held_out import panel_of

GAMES, TURNS = 3, 50
AGENTS = {"trained": "run/adapt/result", "no-adaptation": "run/game/result", "untrained": "autoencoder/clips/result"}
"""Checkpoints of `make demo-model`; of the last only the autoencoder is trained."""
FAST = ("--steps", "20", "--guidance", "1.5")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("demo-model"), help="folder of `make demo-model`")
    parser.add_argument("--out", type=Path, default=Path("demo-drift"), help="folder for everything")
    given = parser.parse_args()
    data, benchmark = given.model / "dataset", given.out / "games.jsonl"
    turns = list(read_texts(open_shards(data, "train")))
    write_benchmark(benchmark, [panel for number in range(1, GAMES + 1) for panel in game_of(turns, number, TURNS)])
    agents = [word for name, folder in AGENTS.items() for word in ("--agent", f"{name}={given.model / folder}")]
    words = ("--benchmark", benchmark, *agents, "--cast", given.model / "cast", "--data", data, *FAST)
    report = run_command("demo-drift", "evaluate", "run", given.out / "evaluation", *words)
    say(f"open {report} in a browser")


def game_of(recorded: Sequence[RecordedTurn], number: int, turns: int) -> list[Panel]:
    """Return a game that plays scene after scene of a film, each as it was recorded, in an order of its own."""
    scenes = [list(group) for _, group in groupby(recorded, key=lambda turn: turn.sample.scene)]
    dice, shown = random.Random(f"drift {number}"), list[RecordedTurn]()
    scene: list[RecordedTurn] = []
    while len(shown) < turns:
        scene = dice.choice([each for each in scenes if each is not scene])
        shown += scene
    return [panel_of(f"drift-{number}", turn, each) for turn, each in enumerate(shown[:turns], start=1)]


if __name__ == "__main__":
    main()
