"""Game from a file, `animegamer play --game`: played into a game folder, and resumed after a stop.

    play_file(Path("game.txt"), Path("checkpoint"), Path("out"))

Every turn is saved when it is finished. After Ctrl-C, a crash or new lines in the game file, the same command plays
only the missing turns. The shots and the film are the same as in an uninterrupted run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from transformers import LlamaTokenizer

from flows.console.terminal import say
from flows.game.folder import GameFolder, game_lock
from flows.game.game_file import read_game_file
from flows.game.records import GameError, GameSettings, TurnRecord
from models.checkpoint import Checkpoint
from models.engine import Engine
from models.engine_options import EngineOptions, PartProgress, unwatched
from models.tokens import instruction_ids
from models.turns import Show, TurnMaker, Values, turn_seed, unseen
from pipeline.core.errors import UserError
from pipeline.core.plain_text import is_line
from pipeline.core.progress import Watch, watched

FILM = "film.mp4"
"""The film of the whole game, in its folder."""
_NAMES_SHOWN = 12
SHARES = {"game model": (0.0, 0.1), "denoising": (0.1, 0.8), "frames": (0.9, 0.1)}
"""Start and length of each part of a turn, as rough shares of its time, for the progress bar."""


def play_file(game: Path, checkpoint: Path, out: Path, options: EngineOptions = EngineOptions(), seed: int = 0) -> Path:
    """Play the instructions of a game file, keep every turn in `out`, and return the film of the whole game.

    The watcher of `pipeline.core.progress` receives the progress, and may stop the game by KeyboardInterrupt.

    Args:
        out: game folder: new, empty, or holding the start of the same game.

    Raises:
        UserError: the game file, the checkpoint or the folder cannot be used.
    """
    opened = Checkpoint.open(checkpoint)
    instructions = read_game_file(game, check=partial(_check, opened.tokenizer()))
    with opened_game(out, GameSettings.of(opened, options, seed), instructions) as folder:
        if is_unfinished(folder, instructions):
            _say_unknown(opened.config.characters, instructions)
            say("loading the networks")
            play_on(folder, Engine.load(checkpoint, options), instructions)
    return out / FILM


def check_line(instruction: str) -> None:
    """Raise a UserError for an instruction with control characters or of several lines, which the log would store."""
    if not is_line(instruction):
        raise UserError("the instruction holds control characters or several lines: type it again as one line of text")


def _check(tokenizer: LlamaTokenizer, instruction: str) -> None:
    check_line(instruction)
    instruction_ids(tokenizer, instruction)


def _say_unknown(characters: Sequence[str], instructions: Sequence[str]) -> None:
    """Print how many instructions name no character of the training data; they are played too."""
    names = [name.casefold() for name in characters]
    unknown = sum(not any(name in instruction.casefold() for name in names) for instruction in instructions)
    if names and unknown:
        listed = ", ".join(characters[:_NAMES_SHOWN]) + (", ..." if len(characters) > _NAMES_SHOWN else "")
        say(f"{unknown} of {len(instructions)} instructions name no character of the training data ({listed})")


def play_on(folder: GameFolder, engine: TurnMaker, instructions: Sequence[str]) -> None:
    """Play the remaining instructions into the game folder, and print a line for each turn."""
    total = len(instructions)
    if folder.turns:
        say(f"resuming after turn {len(folder.turns)} of {total}")
    with watched(folder.path.name, "play") as watch:
        for done in range(len(folder.turns), total):
            before = folder.turns[-1] if done else None
            progress = partial(_report_turn, watch, done, total)
            record = play_turn(folder, engine, instructions[done], before.id if before else None, progress)
            say(line_of(record, before))


def play_turn(
    folder: GameFolder,
    engine: TurnMaker,
    instruction: str,
    parent: str | None,
    progress: PartProgress = unwatched,
    show: Show = unseen,
    *,
    new_shot: bool = False,
) -> TurnRecord:
    """Play one turn after `parent` (None: a first turn) and save it; `show` gets its first frames early.

    An exception raised by `progress` or `show` ends the turn and leaves the folder unchanged.

    Args:
        new_shot: whether not to continue the last shot, though the place stays.

    Raises:
        UserError: the instruction is empty, too long, or not one line of text.
        GameError: there is no such turn, or another process is playing this game.
    """
    check_line(instruction)
    state = folder.state_at(parent)
    if new_shot:
        state = replace(state, last=None)
    number = state.turns + 1
    seed = turn_seed(folder.settings.seed, number, folder.branch(number))
    turn, _ = engine.next_turn(state, instruction, seed, progress, show)
    return folder.keep(turn, parent)


@contextmanager
def opened_game(out: Path, settings: GameSettings, instructions: Sequence[str]) -> Iterator[GameFolder]:
    """Open the folder of a game, new or existing, and lock it during the block; its film is written at the end.

    Raises:
        GameError: another process holds the lock, or the folder does not hold the start of this game.
        UserError: the folder cannot be used.
    """
    with game_lock(out):
        folder = resumed_or_new(out, settings, instructions)
        try:
            yield folder
        finally:  # also after a stop
            if folder.turns:
                folder.join_film(folder.turns[-1].id, out / FILM)
    say(f"the game: {out / FILM}")


def resumed_or_new(out: Path, settings: GameSettings, instructions: Sequence[str]) -> GameFolder:
    """Open a folder that holds the start of this game, or create a new one.

    Raises:
        GameError: the folder holds another game, or other files.
    """
    if not (out / "game.json").exists() or not (folder := GameFolder.open(out)).turns:
        return GameFolder.create(out, settings)
    if name := folder.settings.unlike(settings):
        before, now = getattr(folder.settings, name), getattr(settings, name)
        raise GameError(
            f"{out} holds a game begun with {name} {before}, and this game has {now}; use the same, "
            "or name another --out"
        )
    _check_same_game(folder, instructions)
    return folder


def is_unfinished(folder: GameFolder, instructions: Sequence[str]) -> bool:
    """Return whether an instruction is left to play; print a message if not."""
    if len(folder.turns) < len(instructions):
        return True
    say(f"nothing to play: all {len(instructions)} turns are there")
    return False


def _report_turn(watch: Watch, turns: int, total: int, part: str, done: float, of: float) -> None:
    """Report the progress of one turn as progress of the game, in turns."""
    begin, share = SHARES[part]
    watch(turns + begin + share * done / of, total)


def line_of(record: TurnRecord, before: TurnRecord | None) -> str:
    """Format a turn as one line: number, instruction, motion, and the character values with their changes."""
    earlier = before.values if before else Values()
    values = "  ".join(f"{name} {value} ({value - getattr(earlier, name):+d})" for name, value in record.values)
    return f"{record.number:4}  {record.instruction}  |  level {record.level} ({record.scope_px:g} px)  |  {values}"


def _check_same_game(folder: GameFolder, instructions: Sequence[str]) -> None:
    parent = None
    for number, record in enumerate(folder.turns, start=1):
        if record.parent != parent:
            raise GameError(f"{folder.path} holds a game that branches at turn {record.id}; name another --out")
        if number > len(instructions):
            raise GameError(f"{folder.path} has more turns than the game file; name another --out, or add the lines")
        if record.instruction != instructions[number - 1]:
            raise GameError(
                f'{folder.path}: turn {number} there is "{record.instruction}", in the game file it is '
                f'"{instructions[number - 1]}"; name another --out, or change the line back'
            )
        parent = record.id
