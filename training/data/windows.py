"""Windows: consecutive turns of one film for the game model; the last is the target, the others are the past.

Each turn is the last of one window in every epoch. The length of the window is drawn again in every epoch, uniformly
from all possible lengths. A turn without an instruction cannot be written into a prompt and is treated as a dropped
clip. A turn that overlaps the one before it is in no window, and its successor follows the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from training.config import WindowSettings
from training.data.order import Position, draw
from training.data.turns import RecordedTurn


@dataclass(frozen=True)
class Window:
    """One or more turns of one film in time order."""

    turns: tuple[RecordedTurn, ...]

    @property
    def past(self) -> tuple[RecordedTurn, ...]:
        """Past turns, oldest first."""
        return self.turns[:-1]

    @property
    def target(self) -> RecordedTurn:
        """Turn to predict."""
        return self.turns[-1]


class Windows:
    """Windows of a sequence of turns: one for each turn with an instruction and without overlap."""

    def __init__(self, turns: Iterable[RecordedTurn], settings: WindowSettings, seed: int = 0) -> None:
        """Compute the maximum window length of each turn.

        Args:
            turns: turns of a `Catalog`, grouped by film, in time order.
            settings: rules for the turns of one window.
            seed: seed of the lengths.
        """
        self.settings, self.seed = settings, seed
        turns = tuple(turns)
        self._overlapping = {_number(turn) for turn in turns if turn.sample.overlap_seconds}
        self.turns = tuple(turn for turn in turns if turn.instruction and not turn.sample.overlap_seconds)
        self._reach = [1] * len(self.turns)
        for place in range(1, len(self.turns)):
            if self._follows(self.turns[place - 1], self.turns[place]):
                self._reach[place] = min(settings.most_turns, self._reach[place - 1] + 1)

    def __len__(self) -> int:
        return len(self.turns)

    def at(self, place: Position) -> Window:
        """Return the window that ends with an item, with the length drawn for its epoch."""
        return self._window(place.item, 1 + draw(self.seed, place, self._reach[place.item]))

    def longest(self, item: int) -> Window:
        """Return the longest window that ends with an item, the same as during play; deterministic."""
        return self._window(item, self._reach[item])

    def _window(self, item: int, length: int) -> Window:
        return Window(self.turns[item + 1 - length : item + 1])

    def _follows(self, before: RecordedTurn, turn: RecordedTurn) -> bool:
        one, other = before.sample, turn.sample
        if one.film_id != other.film_id:
            return False
        in_scene = self.settings.across_scenes or one.scene == other.scene
        between = {(one.film_id, index) for index in range(one.index + 1, other.index)}
        return in_scene and (self.settings.across_gaps or between <= self._overlapping)


def _number(turn: RecordedTurn) -> tuple[str, int]:
    """Film and number of the turn's clip."""
    return turn.sample.film_id, turn.sample.index
