"""The game: instructions in, animation shots and character values out, for as long as one likes.

for turn in Game.load("checkpoint").play(["Qiqi runs over the waves", "Qiqi falls asleep"]):
    print(turn.values, turn.frames_THWC.shape)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

from models.engine import Engine
from models.engine_options import EngineOptions
from models.progress import PartProgress, unwatched
from models.turns import GameState, Turn, TurnMaker, turn_seed


class Agent(Protocol):
    """Player of a game from instructions: `Game`, or a baseline to compare it with."""

    def play(self, instructions: str | Sequence[str]) -> Iterator[Turn]:
        """The turns that answer the instructions, in order.

        A method that draws a whole story at once needs all instructions in one call; one that answers turn by turn may
        be called again and again.
        """
        ...


class Game:
    """A game under way.

    Args:
        engine: what makes the turns; several games may share one.
        seed: the same seed and the same instructions give the same game.
        state: where to begin: the start of a game, or the `state` of another one to go on from there.
    """

    def __init__(self, engine: TurnMaker, seed: int = 0, state: GameState | None = None) -> None:
        self.engine = engine
        self.seed = seed
        self.state = state or GameState()
        """The present state of the game."""

    @classmethod
    def load(cls, checkpoint: Path | str, options: EngineOptions = EngineOptions(), seed: int = 0) -> Self:
        """A new game with the networks of a checkpoint.

        Raises:
            UserError: no checkpoint there, or not a whole one.
        """
        return cls(Engine.load(checkpoint, options), seed)

    def play(self, instructions: str | Iterable[str], progress: PartProgress = unwatched) -> Iterator[Turn]:
        """Play one instruction, or several in a row.

        Lazy: a turn is played when it is asked for, and `state` moves on with each. The instructions may come from an
        iterator that waits for the player. A turn that fails or is stopped leaves the state as it was before it.

        Raises:
            UserError: an instruction is empty or too long.
        """
        for instruction in [instructions] if isinstance(instructions, str) else instructions:
            seed = turn_seed(self.seed, self.state.turns + 1)
            turn, self.state = self.engine.next_turn(self.state, instruction, seed, progress)
            yield turn
