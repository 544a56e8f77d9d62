"""Data classes of a game: character values, game state and turn.

`GameState` holds everything the next turn depends on. It is immutable: a turn returns a new one. So a game can continue
from any of its turns, and concurrent games do not interfere.

Shapes: T frames, H and W pixels, C colours (RGB), L shot tokens of width D.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.engine_options import PartProgress, unwatched
from models.tokens import PastTurn, State

START = 50
"""Initial character value; the range is 0 to 100."""
Frames: TypeAlias = NDArray[np.uint8]
"""Frames of a shot, THWC, RGB."""
Show = Callable[[Frames], None]
"""Callback that gets the first frames of a shot while the others are decoded. It may raise to end the work."""
TIMES = ("daytime", "morning", "evening", "night")
"""Times of day that captions put before a place."""
INSTRUCTION_LINE = re.compile(
    r"(?:Character: (?P<characters>[^;]*); )?Motion: (?P<motion>[^;]*?)(?:; Background: (?P<background>[^;]*?))?\.?"
)
"""Instruction in the form of the training data."""
_TIME = re.compile(rf"^(?:{'|'.join(TIMES)}) ")
POINTS = 5
"""Points added to a character value per predicted change of 1."""


@dataclass(frozen=True)
class Values:
    """The three character values, 0 to 100."""

    stamina: int = START
    social: int = START
    entertainment: int = START

    def after(self, state: State) -> Values:
        """Values after a turn with this state."""
        return Values(
            stamina=_moved(self.stamina, state.stamina),
            social=_moved(self.social, state.social),
            entertainment=_moved(self.entertainment, state.entertainment),
        )


def _moved(value: int, change: int) -> int:
    return min(100, max(0, value + POINTS * change))


@dataclass(frozen=True, eq=False)
class LastShot:
    """Shot that the next one may continue."""

    instruction: str
    ending_CHW: Tensor
    """Its `models.shot_decoder.ending`, on the CPU."""


@dataclass(frozen=True, eq=False)
class GameState:
    """Everything the next turn depends on. Its size is bounded: the window keeps only the last turns."""

    turns: int = 0
    values: Values = Values()
    window: tuple[PastTurn, ...] = ()
    """Past turns in the game model's context, oldest first, each with its own state."""
    last: LastShot | None = None
    """The last shot, if the shot decoder continues shots; without it, the next turn is a new shot."""

    def after(self, past: PastTurn, window_turns: int, ending_CHW: Tensor | None = None) -> GameState:
        """State after one more turn; `window_turns` includes the turn to predict."""
        window = (*self.window, past)
        first = max(0, len(window) - (window_turns - 1))  # not [-n:], which keeps everything for n = 0
        last = None if ending_CHW is None else LastShot(past.instruction, ending_CHW)
        return GameState(self.turns + 1, self.values.after(past.state), window[first:], last)


@dataclass(frozen=True, eq=False)
class Turn:
    """One turn as shown to the player."""

    number: int
    """Number of the turn, from 1."""
    instruction: str
    state: State
    scope_px: float
    """Motion scope of the motion level, in pixels."""
    values: Values
    frames_THWC: Frames
    """Animation shot."""
    shot_tokens_LD: Tensor
    """Shot tokens, on the CPU; zero rows from an agent without shot tokens."""
    seconds: dict[str, float] = field(default_factory=dict)
    first_frame_seconds: float | None = None
    """From the instruction to the first frames; None from an agent that does not measure it."""
    device: str = ""
    """Name of the GPU or CPU that drew it."""
    ending_CHW: Tensor | None = None
    """Its `models.shot_decoder.ending`, on the CPU, if the shot decoder continues shots."""
    continues: bool = False
    """True if it continues the shot before."""


def place_of(instruction: str) -> str | None:
    """Return the place that an instruction line names, in small letters and without its time of day."""
    found = INSTRUCTION_LINE.fullmatch(instruction.strip())
    place = _TIME.sub("", (found["background"] or "").strip().lower()) if found else ""
    return place or None


def stays(before: str, instruction: str) -> bool:
    """Return whether an instruction names the place of the one before, at whatever time of day."""
    place = place_of(instruction)
    return place is not None and place == place_of(before)


def turn_seed(seed: int, number: int, branch: int = 0) -> int:
    """Seed of one turn of a game; independent of interruptions, so a resumed game gets the same turns.

    Args:
        branch: distinguishes turns of the same number, after a player went back and tried again.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {number} {branch}".encode()).digest()[:7], "big")


def unseen(frames_THWC: Frames) -> None:
    """Ignore the first frames: the default callback."""


class TurnMaker(Protocol):
    """Maker of one turn after another; the `Engine` is one."""

    @property
    def window_turns(self) -> int:
        """Number of turns in the context of a prediction, the one to predict included."""
        ...

    def next_turn(
        self, state: GameState, instruction: str, seed: int, progress: PartProgress = unwatched, show: Show = unseen
    ) -> tuple[Turn, GameState]:
        """Make the turn after `state`; `show` gets its first frames early."""
        ...
