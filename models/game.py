"""Games: the loop from instructions to turns, and text files of instructions.

for turn in Game.load("checkpoint").play(["Qiqi runs over the waves", "Qiqi falls asleep"]):
    print(turn.values, turn.frames_THWC.shape)

A game file has one instruction a line. Both forms are passed to the game model unchanged; the first is the format of
the training captions:

    # a line that starts with a hash is a comment
    Character: Qiqi; Motion: slowly fly over the sea; Background: morning sky.
    Or free text: she meets Ponyo on the beach and they hug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

from models.engine import Engine
from models.engine_options import EngineOptions, PartProgress, unwatched
from models.turns import GameState, Turn, TurnMaker, turn_seed
from pipeline.core.errors import UserError


class Agent(Protocol):
    """Player of a game from instructions: `Game`, or a baseline to compare it with."""

    def play(self, instructions: str | Sequence[str]) -> Iterator[Turn]:
        """Play the instructions and yield their turns in order.

        An agent that draws a whole story at once needs all instructions in one call; one that plays turn by turn may be
        called repeatedly.
        """
        ...


class Game:
    """A running game.

    Args:
        engine: maker of the turns; several games may share one.
        seed: the same seed and the same instructions give the same game.
        state: initial state; the `state` of another game continues it. Default: a new game.
    """

    def __init__(self, engine: TurnMaker, seed: int = 0, state: GameState | None = None) -> None:
        self.engine = engine
        self.seed = seed
        self.state = state or GameState()
        """Current state of the game."""

    @classmethod
    def load(cls, checkpoint: Path | str, options: EngineOptions = EngineOptions(), seed: int = 0) -> Self:
        """Start a new game with the networks of a checkpoint.

        Raises:
            UserError: the checkpoint is missing or incomplete.
        """
        return cls(Engine.load(checkpoint, options), seed)

    def play(self, instructions: str | Iterable[str], progress: PartProgress = unwatched) -> Iterator[Turn]:
        """Play one instruction, or several in a row.

        Lazy: each turn is played when the iterator is advanced, and updates `state`. The instructions may come from an
        iterator that blocks on the player's input. A turn that fails or is stopped leaves `state` unchanged.

        Raises:
            UserError: an instruction is empty or too long.
        """
        for instruction in [instructions] if isinstance(instructions, str) else instructions:
            seed = turn_seed(self.seed, self.state.turns + 1)
            turn, self.state = self.engine.next_turn(self.state, instruction, seed, progress)
            yield turn


def read_game_file(path: Path, check: Callable[[str], object] | None = None) -> list[str]:
    """Read the instructions of a game file in order; blank lines and comments are skipped.

    Args:
        path: UTF-8 text, with or without a byte order mark, with LF, CRLF or CR line ends.
        check: called with each instruction; a UserError from it is raised again with file and line.

    Raises:
        UserError: the file cannot be read, is not UTF-8, or holds no instruction; or `check` rejected one.
    """
    instructions = []
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        instruction = line.strip()
        if not instruction or instruction.startswith("#"):
            continue
        if check:
            try:
                check(instruction)
            except UserError as error:
                raise UserError(f"{path}, line {number}: {error}") from error
        instructions.append(instruction)
    if not instructions:
        raise UserError(f"{path}: no instruction in it; write one per line, such as `Character: Qiqi; Motion: fly.`")
    return instructions


def _text_of(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: not a file; give a text file with one instruction per line")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
