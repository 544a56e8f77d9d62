"""Checks of stories and counts of a benchmark: continuity, returns to earlier places, balance of levels and states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from prompts.evaluation_replies import StoryPanel
from prompts.tags import TagError
from training.evaluation.benchmark import BenchmarkGame, Panel

LONGEST_RETURN_FREE = 4
"""Maximum number of panels of a story that need not return to a place."""


def most_places(panels: int) -> int:
    """Return the maximum number of places in a story: half the number of panels, but at least two."""
    return max(2, panels // 2)


def check_story(panels: Sequence[StoryPanel]) -> None:
    """Check that a story hangs together: few places, a return to one, and no motion twice.

    Raises:
        TagError: the story does not; the message is a sentence for the model.
    """
    places = [panel.EV for panel in panels]
    faults = []
    twice = [motion for motion, count in Counter(panel.MD for panel in panels).items() if count > 1]
    if twice:
        faults.append(f'The motion "{twice[0]}" occurs twice; every panel needs another motion.')
    if len(set(places)) > most_places(len(panels)):
        faults.append(f"The story visits {len(set(places))} places; at most {most_places(len(panels))} are allowed.")
    if len(panels) > LONGEST_RETURN_FREE and not returns(places):
        faults.append("The story never comes back to a place that it had left.")
    if faults:
        raise TagError(" ".join(faults))


def returns(places: Sequence[str | None]) -> int:
    """Return the number of panels that go back to a place that was left before."""
    moves = [number for number in range(1, len(places)) if places[number] != places[number - 1]]
    return sum(places[number] in places[:number] for number in moves if places[number])


@dataclass(frozen=True)
class BenchmarkCounts:
    """Counts of a benchmark."""

    characters: int
    games: int
    rounds: int
    motions: int
    environments: int
    same_place: float | None
    """Share of panels at the place of the previous panel; None if no two panels in a row have places."""
    returns: int
    games_with_return: int
    levels: dict[int, int]
    states: dict[str, dict[int, int]]
    """Panels by value of each state."""


def count_games(games: Sequence[BenchmarkGame]) -> BenchmarkCounts:
    """Count the games of a benchmark."""
    panels = [panel for game in games for panel in game.panels]
    places = [[panel.EV for panel in game.panels] for game in games]
    pairs = [pair for game in places for pair in pairwise(game) if all(pair)]
    back = [returns(game) for game in places]
    return BenchmarkCounts(
        characters=len({name for panel in panels for name in panel.characters}),
        games=len(games),
        rounds=len(panels),
        motions=len({panel.MD for panel in panels if panel.MD}),
        environments=len({panel.EV for panel in panels if panel.EV}),
        same_place=sum(one == other for one, other in pairs) / len(pairs) if pairs else None,
        returns=sum(back),
        games_with_return=sum(map(bool, back)),
        levels=_counts(panels, "level"),
        states={tag: _counts(panels, tag) for tag in ("SC", "ET", "ST")},
    )


def summary(counts: BenchmarkCounts) -> list[str]:
    """Return the counts as lines of text."""
    stays = "" if counts.same_place is None else f"{counts.same_place:.0%} of panels stay at a place; "
    states = (
        f"{tag} " + " / ".join(f"{value}: {n}" for value, n in found.items()) for tag, found in counts.states.items()
    )
    return [
        f"{counts.characters:,} characters, {counts.motions:,} motions, {counts.environments:,} environments, "
        f"{counts.games:,} games, {counts.rounds:,} rounds",
        f"{stays}{counts.returns:,} returns to a place, in {counts.games_with_return:,} games",
        "motion levels " + " / ".join(f"{level}: {number:,}" for level, number in counts.levels.items()),
        "; ".join(states),
    ]


def _counts(panels: Sequence[Panel], name: str) -> dict[int, int]:
    values = Counter(getattr(panel, name) for panel in panels)
    return {value: values[value] for value in sorted(value for value in values if value is not None)}
