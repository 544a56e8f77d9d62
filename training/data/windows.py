"""Windows: a few turns of one film in a row, as the game model learns them. The last is predicted, the others are past.

Each turn is the last of one window in every epoch, and how far its window reaches back is drawn anew each time, with
equal weights for every length there is. A turn without an instruction cannot be written in a prompt; it counts like a
clip that was dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from training.config import WindowSettings
from training.data.order import Position, draw
from training.data.turns import RecordedTurn


@dataclass(frozen=True)
class Window:
    """Turns of one film in time order; at least one."""

    turns: tuple[RecordedTurn, ...]

    @property
    def past(self) -> tuple[RecordedTurn, ...]:
        """The turns to remember, oldest first."""
        return self.turns[:-1]

    @property
    def target(self) -> RecordedTurn:
        """The turn to predict."""
        return self.turns[-1]


class Windows:
    """All windows of some turns; as many as there are turns with an instruction."""

    def __init__(self, turns: Iterable[RecordedTurn], settings: WindowSettings, seed: int = 0) -> None:
        """Find how far back each turn's window can reach.

        Args:
            turns: of a `Catalog`: film after film, in time order.
            settings: which turns may stand in one window.
            seed: of the lengths.
        """
        self.settings, self.seed = settings, seed
        self.turns = tuple(turn for turn in turns if turn.instruction)
        self._reach = [1] * len(self.turns)
        for place in range(1, len(self.turns)):
            if self._follows(self.turns[place - 1], self.turns[place]):
                self._reach[place] = min(settings.most_turns, self._reach[place - 1] + 1)

    def __len__(self) -> int:
        return len(self.turns)

    def at(self, place: Position) -> Window:
        """The window that ends with an item in an epoch."""
        return self._window(place.item, 1 + draw(self.seed, place, self._reach[place.item]))

    def longest(self, item: int) -> Window:
        """The longest window that ends with an item: what play would remember, and nothing about it is random."""
        return self._window(item, self._reach[item])

    def _window(self, item: int, length: int) -> Window:
        return Window(self.turns[item + 1 - length : item + 1])

    def _follows(self, before: RecordedTurn, turn: RecordedTurn) -> bool:
        one, other = before.sample, turn.sample
        if one.film_id != other.film_id:
            return False
        in_scene = self.settings.across_scenes or one.scene == other.scene
        return in_scene and (self.settings.across_gaps or one.index + 1 == other.index)
