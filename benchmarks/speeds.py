"""Speeds of the packaged game: seconds of a turn at each `play --speed`, and its difference from `best`.

    make bench-speeds

Games of five turns are asked of the model, with character, motion, place and level drawn at random. Every speed
predicts each turn after the same past turns, and draws every tenth from the same noise. `frames dB` is the PSNR of
frames that two decoders make of the same latents; half precision must keep 50 dB, and 40 dB of a whole turn of equal
steps. Shots of another number of steps or another sampler are other pictures: compare how well they show what was
asked.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.sampling import Asked, level_error, psnr, shown, turns_to_draw
from examples.miniature.recogniser_network import Recogniser
from models.acceleration import precision_name
from models.engine import Engine, name_of
from models.engine_options import SPEEDS, EngineOptions, Speed
from models.frames import decode_latents, encode_frames
from models.game_model import Prediction
from models.shipped import shipped
from models.tokens import PastTurn, write_prompt
from models.turns import GameState, Turn

PARTS = ("game model", "denoising", "frames")
TURNS_OF_A_GAME = 5
DRAWN_OF = 10
"""One turn of so many is drawn."""


@dataclass
class Played:
    """Turns at one speed."""

    engine: Engine
    same: int = 0
    """Turns with the state that `best` has predicted."""
    turns: list[Turn] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """CPU time of each turn: unlike its seconds, it hardly depends on what else the machine does."""
    decoded: list[Turn] = field(default_factory=list)
    """Turns of `best`, encoded by it and decoded here."""


def states_of(engine: Engine, asked: Sequence[Asked]) -> Iterator[tuple[GameState, Prediction]]:
    """Yield the state before each turn, and the prediction of the turn."""
    state = GameState()
    for number, one in enumerate(asked):
        if number % TURNS_OF_A_GAME == 0:
            state = GameState()
        found = predicted(engine, state, one)
        yield state, found
        state = state.after(PastTurn(one.instruction, found.shot_tokens_LD, found.state), engine.window_turns)


def predicted(engine: Engine, state: GameState, asked: Asked) -> Prediction:
    """Predict a turn without drawing it."""
    tokens, conventions = engine.config.shot_encoder.shot_tokens, engine.config.conventions
    return engine.game_model.predict(
        write_prompt(engine.tokenizer, state.window, asked.instruction, tokens, conventions)
    )


def play(ways: dict[Speed, Played], asked: Sequence[Asked]) -> None:
    """Predict all turns at each speed, and draw some."""
    best = ways["best"]
    steps = track(states_of(best.engine, asked), total=len(asked), console=Console(stderr=True))
    for number, (state, expected) in enumerate(steps):
        for way in ways.values():
            way.same += predicted(way.engine, state, asked[number]).state == expected.state
            if number % DRAWN_OF == DRAWN_OF - 1:
                started = time.process_time()
                way.turns.append(way.engine.next_turn(state, asked[number].instruction, seed=number)[0])
                way.cpu_seconds.append(time.process_time() - started)
                way.decoded.append(decoded(best.turns[-1], best.engine, way.engine))


def decoded(turn: Turn, encoder: Engine, decoder: Engine) -> Turn:
    """Encode the frames of a turn by one engine, and decode them by another."""
    frames_BTHWC = torch.from_numpy(turn.frames_THWC)[None]
    missing = encoder.config.shot_decoder.frames - frames_BTHWC.shape[1]
    frames_BTHWC = torch.cat([frames_BTHWC, *[frames_BTHWC[:, -1:]] * missing], dim=1)
    latents_BTCHW = encode_frames(encoder.autoencoder, frames_BTHWC).mean_BTCHW
    return replace(turn, frames_THWC=decode_latents(decoder.autoencoder, latents_BTCHW)[0].numpy())


def row_of(way: Played, best: Played, asked: Sequence[Asked], recogniser: Recogniser) -> list[str]:
    """Return the figures of a speed: seconds, difference from `best`, and quality."""
    seconds = [median(turn.seconds[part] for turn in way.turns) for part in PARTS]
    sampling, drawn = way.engine.sampling, asked[DRAWN_OF - 1 :: DRAWN_OF]
    with tempfile.TemporaryDirectory() as folder:
        off = level_error(way.engine.config, way.turns, Path(folder))
    return [
        f"{sampling.steps} {sampling.sampler}",
        *(f"{each:.2f}" for each in (*seconds, sum(seconds), median(way.cpu_seconds))),
        f"{way.same} of {len(asked)}",
        f"{psnr(way.decoded, best.decoded):.1f}",
        f"{psnr(way.turns, best.turns):.1f}",
        f"{off:.2f}",
        f"{shown(recogniser, drawn, way.turns):.2f}",
    ]


def main() -> None:
    """Play the same turns at each speed, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=200, help="turns predicted; a tenth of them is drawn")
    given = parser.parse_args()
    recogniser = Recogniser.open()
    options = {speed: EngineOptions("cpu", speed=speed) for speed in SPEEDS}
    ways = {speed: Played(Engine.load(shipped().folder, each)) for speed, each in options.items()}
    best = ways["best"]
    asked = turns_to_draw(best.engine.config, given.turns)
    play(ways, asked)
    quality = ("same state", "frames dB", "turn dB", "level off by", "as asked")
    table = Table("speed", "precision", "steps", *PARTS, "turn s", "CPU s", *quality, title=name_of(best.engine.device))
    for speed, way in ways.items():
        precision = precision_name(options[speed], best.engine.device)
        table.add_row(speed, precision, *row_of(way, best, asked, recogniser))
    Console(width=int(os.environ.get("COLUMNS", "130"))).print(table)


if __name__ == "__main__":
    main()
