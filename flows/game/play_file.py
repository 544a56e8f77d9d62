"""`animegamer play --game`: play a file of instructions into a game folder, and go on where an earlier run stopped.

    play_file(Path("game.txt"), Path("checkpoint"), Path("out"))

Every finished turn is kept as it is made. The same command after Ctrl-C, a crash or a longer game file plays only what
is missing, and gives the same files as a run that was never stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from flows.console.terminal import say
from flows.game.folder import GameFolder, alone
from flows.game.records import GameError, GameSettings, TurnRecord
from models.checkpoint import Checkpoint
from models.engine import GUIDANCE, STEPS, Engine
from models.instructions import read_instructions
from models.tokens import instruction_ids
from models.turns import TurnMaker, Values
from pipeline.core.progress import Watch, watched

SHARES = {"game model": (0.0, 0.1), "denoising": (0.1, 0.8), "frames": (0.9, 0.1)}
"""Where each part of a turn begins and how much of the turn it is, roughly, for the bar."""


def play_file(
    game: Path,
    checkpoint: Path,
    out: Path,
    *,
    seed: int = 0,
    steps: int = STEPS,
    guidance: float = GUIDANCE,
    device: str | None = None,
    offload: bool = False,
    compile: bool = False,
) -> Path:
    """Play the instructions of a game file and keep every turn in `out`; gives the film of the whole game.

    The watcher of `flows.console.progress` is told how far the game is, and may stop it by KeyboardInterrupt.

    Args:
        game: a text file, an instruction a line.
        checkpoint: a checkpoint folder.
        out: the game folder: new, empty, or one where the same game was begun.
        seed: the same seed gives the same game.
        steps: denoising steps.
        guidance: how strongly the shot tokens are followed.
        device: where to compute; unset: the first GPU, if there is one.
        offload: for a small card, one network on it at a time.
        compile: compile the shot decoder first.

    Raises:
        UserError: the game file, the checkpoint or the folder cannot be used; the message says how to mend it.
    """
    opened = Checkpoint.open(checkpoint)
    instructions = read_instructions(game, check=partial(instruction_ids, opened.tokenizer()))
    settings = GameSettings.of(opened, seed, steps, guidance)
    film = out / "film.mp4"
    with alone(out):
        folder = _begun_or_new(out, settings, instructions)
        try:
            if len(folder.turns) == len(instructions):
                say(f"nothing to play: all {len(instructions)} turns of {game.name} are there")
            else:
                say("loading the networks")
                engine = Engine.load(
                    checkpoint, device=device, steps=steps, guidance=guidance, offload=offload, compile=compile
                )
                play_on(folder, engine, instructions)
        finally:  # also of a game that was stopped
            if folder.turns:
                folder.film(folder.turns[-1].id, film)
    say(f"the game: {film}")
    return film


def play_on(folder: GameFolder, engine: TurnMaker, instructions: Sequence[str]) -> None:
    """Play the instructions that the game in the folder has not had yet, telling of each turn."""
    total = len(instructions)
    if folder.turns:
        say(f"going on after turn {len(folder.turns)} of {total}")
    with watched(folder.path.name, "play") as watch:
        for done in range(len(folder.turns), total):
            before = folder.turns[-1] if done else None
            record = folder.play(
                engine, instructions[done], before.id if before else None, partial(_tell, watch, done, total)
            )
            say(line_of(record, before))


def _tell(watch: Watch, turns: int, total: int, part: str, done: float, of: float) -> None:
    """Pass the progress of one turn on as the progress of the game, in turns."""
    begin, share = SHARES[part]
    watch(turns + begin + share * done / of, total)


def line_of(record: TurnRecord, before: TurnRecord | None) -> str:
    """A turn on one line: number, instruction, motion, and the character values with what the turn did to them."""
    earlier = before.values if before else Values()
    values = "  ".join(f"{name} {value} ({value - getattr(earlier, name):+d})" for name, value in record.values)
    return f"{record.number:4}  {record.instruction}  |  level {record.level} ({record.scope_px:g} px)  |  {values}"


def _begun_or_new(out: Path, settings: GameSettings, instructions: Sequence[str]) -> GameFolder:
    """The game folder to play in: what is in it is the beginning of this very game."""
    if not (out / "game.json").exists() or not (folder := GameFolder.open(out)).turns:
        return GameFolder.create(out, settings)
    for name, before in folder.settings:
        if before != getattr(settings, name):
            raise GameError(
                f"{out}: the game there was begun with {name} {before}, this one has {getattr(settings, name)}; "
                "use the same, or name another --out"
            )
    _check_same_game(folder, instructions)
    return folder


def _check_same_game(folder: GameFolder, instructions: Sequence[str]) -> None:
    parent = None
    for number, record in enumerate(folder.turns, start=1):
        if record.parent != parent:
            raise GameError(f"{folder.path}: that game branches at turn {record.id}; name another --out")
        if number > len(instructions):
            raise GameError(f"{folder.path}: has more turns than the game file; name another --out, or add the lines")
        if record.instruction != instructions[number - 1]:
            raise GameError(
                f'{folder.path}: turn {number} there is "{record.instruction}", in the game file it is '
                f'"{instructions[number - 1]}"; name another --out, or change the line back'
            )
        parent = record.id
