"""Plain values of a game: the character values, the state of a game, and a turn.

`GameState` is all that the next turn depends on. It is never changed, only followed by another, so a game can go on
from any of its turns, and two players cannot get in each other's way.

Shapes: T frames, H and W pixels, C the colours red, green, blue; L shot tokens of width D.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.progress import PartProgress, unwatched
from models.tokens import PastTurn, State

START = 50
"""Every character value before the first turn; the range is 0 to 100."""
POINTS = 5
"""Points that a predicted change of one moves a character value by."""


@dataclass(frozen=True)
class Values:
    """The three character values, 0 to 100."""

    stamina: int = START
    social: int = START
    entertainment: int = START

    def after(self, state: State) -> Values:
        """The values when a turn with this state is over."""
        return Values(
            stamina=_moved(self.stamina, state.stamina),
            social=_moved(self.social, state.social),
            entertainment=_moved(self.entertainment, state.entertainment),
        )


def _moved(value: int, change: int) -> int:
    return min(100, max(0, value + POINTS * change))


@dataclass(frozen=True, eq=False)
class GameState:
    """All that the next turn depends on. It never grows: the window keeps the last turns only."""

    turns: int = 0
    """Turns played."""
    values: Values = Values()
    window: tuple[PastTurn, ...] = ()
    """The turns that the game model looks back on, oldest first, each with the state that it had itself."""

    def after(self, past: PastTurn, window_turns: int) -> GameState:
        """The state when a further turn is over; `window_turns` counts the turn to come as well."""
        window = (*self.window, past)
        first = max(0, len(window) - (window_turns - 1))  # not [-n:], which keeps everything where n is 0
        return GameState(self.turns + 1, self.values.after(past.state), window[first:])


@dataclass(frozen=True, eq=False)
class Turn:
    """One turn as the player gets it."""

    number: int
    """1 for the first."""
    instruction: str
    state: State
    scope_px: float
    """Motion scope that the motion level stands for."""
    values: Values
    """After the turn."""
    frames_THWC: NDArray[np.uint8]
    """The animation shot, RGB."""
    shot_tokens_LD: Tensor
    """On the CPU; without rows from an agent that has no shot tokens."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of each part."""


def turn_seed(seed: int, number: int, branch: int = 0) -> int:
    """The seed of one turn of a game: the same whether the game was played in one go or resumed.

    Args:
        seed: the game's.
        number: the turn's, 1 for the first.
        branch: tells apart the turns of one number, where a player went back and tried again.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {number} {branch}".encode()).digest()[:7], "big")


class TurnMaker(Protocol):
    """Maker of one turn after another; the `Engine` is one."""

    @property
    def window_turns(self) -> int:
        """Turns that a prediction spans, the one to predict included."""
        ...

    def next_turn(
        self, state: GameState, instruction: str, seed: int, progress: PartProgress = unwatched
    ) -> tuple[Turn, GameState]:
        """Make the turn after `state`."""
        ...
