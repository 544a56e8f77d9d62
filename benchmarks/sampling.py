"""Quality of the packaged game's shots against denoising steps, by sampler and guidance.

    make bench-sampling

Single turns are asked of the model, each of another character, motion, place and level, drawn at random. The shot
tokens of a turn do not depend on its frames, so every setting draws the same turns, from the same noise. A setting is
compared with 50 steps of its own sampler (PSNR), and the motion level drawn, measured as an evaluation does, with the
level predicted. The recogniser of the world in miniature gives the share of shots that show what was asked. Ctrl-C
prints the rows so far.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from examples.miniature.recogniser_network import Recogniser
from models.config import ModelConfig, Sampling
from models.engine import Engine
from models.engine_options import EngineOptions, Sampler
from models.shipped import shipped
from models.turns import GameState, Turn
from pipeline.captions.rules import ADVERBS
from pipeline.core.config import MotionSettings
from pipeline.stages.motion_levels import level_of
from pipeline.video.clip_files import write_clip
from training.evaluation.metrics.features import ClipMotions, decode_clip

STEPS = (1, 2, 4, 5, 10, 20, 50)
GUIDANCE = (Sampling(guidance=1.0), Sampling(guidance=2.0), Sampling(guidance=2.0, guided=(200, 800)))
"""None, the packaged model's own, and its own away from both ends."""


@dataclass(frozen=True)
class Asked:
    """Turn to draw."""

    character: str
    motion: str
    place: str
    level: int

    @property
    def instruction(self) -> str:
        """Instruction in the form of the training data."""
        return f"Character: {self.character}; Motion: {ADVERBS[self.level]} {self.motion}; Background: {self.place}."


@dataclass(frozen=True)
class Drawn:
    """Turns of one setting."""

    turns: Sequence[Turn]
    cpu_seconds: float
    """Mean CPU time of a turn."""


def turns_to_draw(config: ModelConfig, count: int) -> list[Asked]:
    """Choose turns uniformly from the words of the model, always the same ones."""
    random, levels = Random("turns to draw"), sorted(ADVERBS)
    words = config.characters, config.motions, config.places
    turns = [[random.choice(each) for each in words] for _ in range(count)]
    return [Asked(character, motion, place, random.choice(levels)) for character, motion, place in turns]


def draw(engine: Engine, sampling: Sampling, asked: Sequence[Asked]) -> Drawn:
    """Draw the first turn of a game for each instruction."""
    engine.sampling, started = sampling, time.process_time()
    turns = [engine.next_turn(GameState(), one.instruction, seed)[0] for seed, one in enumerate(asked)]
    return Drawn(turns, (time.process_time() - started) / len(turns))


def psnr(turns: Sequence[Turn], others: Sequence[Turn]) -> float:
    """Mean PSNR in dB between the frames of two settings; infinite for equal frames."""
    pairs = ((one.frames_THWC.astype(float), other.frames_THWC) for one, other in zip(turns, others, strict=True))
    errors = [float(np.mean((one - other) ** 2)) for one, other in pairs]
    return mean(10 * np.log10(255**2 / error) if error else np.inf for error in errors)


def level_error(config: ModelConfig, turns: Sequence[Turn], folder: Path) -> float:
    """Mean distance between the level predicted for a turn and the level of the motion drawn.

    The edges of the levels are in pixels of the dataset's clips, which are larger than the frames drawn.
    """
    measured, file = config.levels, folder / "turn.mp4"
    assert measured, "the packaged model has them"
    motions = ClipMotions(MotionSettings(scale=measured.dis_scale), (measured.width, measured.height))
    errors = []
    for turn in turns:
        write_clip(file, turn.frames_THWC[..., ::-1], Fraction(config.shot_decoder.fps), crf=17)
        (found,) = motions.describe([decode_clip(file)])
        errors.append(abs(level_of(float(found["scope_px"][0]), measured.edges) - turn.state.level))
    return mean(errors)


def shown(recogniser: Recogniser, asked: Sequence[Asked], turns: Sequence[Turn]) -> float:
    """Share of the turns whose character, motion and place are named as asked."""
    names = [recogniser.name(torch.from_numpy(turn.frames_THWC[None]))[0] for turn in turns]
    right = (
        found.follows([one.character], _named(one.place), one.motion)["as asked"]
        for found, one in zip(names, asked, strict=True)
    )
    return mean(right)


def _named(place: str) -> str:
    """Name of a place without its time of day."""
    return place.removeprefix("night ").removeprefix("daytime ")


def main() -> None:
    """Draw all turns in every setting, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40, help="turns in each setting")
    given = parser.parse_args()
    engine = Engine.load(shipped().folder, EngineOptions("cpu"))
    recogniser = Recogniser.open()
    asked = turns_to_draw(engine.config, given.turns)
    table = Table("sampler", "guidance", "steps", "PSNR to 50", "level off by", "as asked", "CPU s a turn")
    samplers: tuple[Sampler, ...] = ("sde", "ode")
    settings = list(product(samplers, GUIDANCE))
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        for sampler, guided in track(settings, console=Console(stderr=True)):
            drawn = {steps: draw(engine, guided.replaced(sampler=sampler, steps=steps), asked) for steps in STEPS}
            for steps, found in drawn.items():
                table.add_row(
                    sampler,
                    f"{guided.guidance:g}" + ("" if guided.guided == Sampling().guided else " inside"),
                    str(steps),
                    f"{psnr(found.turns, drawn[50].turns):.1f}",
                    f"{level_error(engine.config, found.turns, Path(folder)):.2f}",
                    f"{shown(recogniser, asked, found.turns):.2f}",
                    f"{found.cpu_seconds:.2f}",
                )
    Console(width=int(os.environ.get("COLUMNS", "100"))).print(table)


if __name__ == "__main__":
    main()
