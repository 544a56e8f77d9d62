"""Windows of consecutive turns of one film for the game model: the last is the target, the others are the past.

Training first draws the length of a window, and then a target with enough past. An epoch has equally many windows of
every length, however many turns reach that length, or a given share of the longest ones (`longest_share`). For each
length, every turn with enough past is the target once
before any turn is the target again, also across epochs.

Packed windows (`packed`) have a target in every turn, each after the turns before it. One sequence then stands for as
many windows as it has turns, and its loss is the mean of theirs. An epoch has one packed window for each turn that can
end one, as long as possible.

A turn without an instruction cannot be written into a prompt and is treated as a dropped clip. A window may skip a few
dropped clips of one scene (`most_gap`). No window contains a turn that overlaps its predecessor; the turns around it
follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from models.config import Continues
from models.turns import stays
from training.config import WindowSettings
from training.data.order import Position, epoch_order
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


def continued(turns: Sequence[RecordedTurn], continues: Continues) -> tuple[RecordedTurn | None, ...]:
    """Return for each turn the turn that its shot continues, None for a new shot.

    It directly follows that turn in the film and is in its scene or, for `place`, in its place by both instructions, as
    in play.

    Args:
        turns: turns grouped by film, in time order.
    """
    befores = (None, *turns[:-1]) if turns else ()
    pairs = zip(befores, turns, strict=True)
    return tuple(before if before and _continues(before, turn, continues) else None for before, turn in pairs)


def _continues(before: RecordedTurn, turn: RecordedTurn, continues: Continues) -> bool:
    one, other = before.sample, turn.sample
    if (one.film_id, one.index + 1) != (other.film_id, other.index) or other.overlap_seconds:
        return False
    is_staying = continues == "place" and stays(before.instruction, turn.instruction)
    return is_staying or (continues != "no" and one.scene == other.scene)


class Windows:
    """Windows of a sequence of turns. An epoch has one window per turn with an instruction and without overlap."""

    def __init__(self, turns: Iterable[RecordedTurn], settings: WindowSettings, seed: int = 0) -> None:
        """Compute the maximum window length of each turn.

        Args:
            turns: turns of a `Catalog`, grouped by film, in time order.
            seed: seed of the order of targets.
        """
        self.settings, self.seed = settings, seed
        turns = tuple(turns)
        # 1. Leave out the turns that no window contains. An overlap is no gap either, so remember its clips.
        samples = [turn.sample for turn in turns]
        self._overlapping = {(each.film_id, each.index) for each in samples if each.overlap_seconds}
        self.turns = tuple(turn for turn in turns if turn.instruction and not turn.sample.overlap_seconds)
        # 2. Count the turns in a row that end with each turn: this is the length of its longest window.
        self._reach = [1] * len(self.turns)
        for item in range(1, len(self.turns)):
            if self._follows(self.turns[item - 1], self.turns[item]):
                self._reach[item] = min(settings.most_turns, self._reach[item - 1] + 1)
        # 3. List for each length the turns that can end such a window, until no turn can.
        ends = ([item for item, reach in enumerate(self._reach) if reach >= length] for length in count(1))
        self._ends = list(takewhile(bool, ends))
        # 4. Deal the items of an epoch out to the lengths: first those of the longest windows, the others in rotation.
        share = settings.longest_share if len(self._ends) > 1 else None
        self._longest = 0 if share is None else round(share * len(self))
        self._kinds = len(self._ends) - (share is not None)
        others = (len(range(kind, len(self) - self._longest, self._kinds)) for kind in range(self._kinds))
        self.lengths = (*others, *(() if share is None else (self._longest,)))
        """Histogram of an epoch: number of windows of 1, 2, ... turns."""
        if settings.packed:
            self.lengths = tuple(self._reach.count(length) for length in range(1, len(self._ends) + 1))

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def reached(self) -> tuple[int, ...]:
        """Number of turns with enough past to end a window of 1, 2, ... turns; only lengths with any."""
        return tuple(map(len, self._ends))

    def __str__(self) -> str:
        """Return the histogram as text, with the number of turns that windows of each length end with."""
        shares = (f"{number / len(self):.0%} of {length}" for length, number in enumerate(self.lengths, start=1))
        ends = " / ".join(f"{number:,}" for number in self.reached)
        return f"{len(self):,} windows an epoch: {', '.join(shares)} turns; {ends} turns can end them"

    def at(self, position: Position) -> Window:
        """Return a window, a function of the seed and the position."""
        if self.settings.packed:
            return self.longest(position.item)
        # 1. The items of an epoch have fixed lengths: the order of the epoch alone makes a length random.
        if position.item < self._longest:
            number, kind = position.item, self._kinds
        else:
            number, kind = divmod(position.item - self._longest, self._kinds)
        ends = self._ends[kind]
        # 2. Number the windows of a length over all epochs. They end with the turns of one permutation after another.
        rounds, within = divmod(position.epoch * self.lengths[kind] + number, len(ends))
        order = epoch_order(self.seed, rounds, len(ends), kind + 1)
        return self._window(ends[order[within]], kind + 1)

    def longest(self, item: int) -> Window:
        """Return the longest window that ends with a turn, the same as during play; deterministic."""
        return self._window(item, self._reach[item])

    def _window(self, item: int, length: int) -> Window:
        return Window(self.turns[item + 1 - length : item + 1])

    def _follows(self, before: RecordedTurn, turn: RecordedTurn) -> bool:
        one, other = before.sample, turn.sample
        if one.film_id != other.film_id:
            return False
        between = {(one.film_id, index) for index in range(one.index + 1, other.index)}
        dropped = len(between - self._overlapping)
        if one.scene != other.scene:
            return self.settings.across_scenes and not dropped
        return dropped <= self.settings.most_gap
