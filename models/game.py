"""Game: the loop from instructions to turns.

for turn in Game.load("checkpoint").play(["Qiqi runs over the waves", "Qiqi falls asleep"]):
    print(turn.values, turn.frames_THWC.shape)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

from models.engine import Engine
from models.engine_options import EngineOptions, PartProgress, unwatched
from models.turns import GameState, Turn, TurnMaker, turn_seed


class Agent(Protocol):
    """Player of a game from instructions: `Game`, or a baseline to compare it with."""

    def play(self, instructions: str | Sequence[str]) -> Iterator[Turn]:
        """Play the instructions and yield their turns in order.

        An agent that plays turn by turn may be called repeatedly. An agent that draws a whole story at once needs all
        instructions in one call.
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

    @classmethod
    def load(cls, checkpoint: Path | str, options: EngineOptions = EngineOptions(), seed: int = 0) -> Self:
        """Start a new game with the networks of a checkpoint. UserError if the checkpoint is missing or incomplete."""
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
