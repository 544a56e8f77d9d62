"""Facts step: what the stories tell by accident, and how often the past that a model sees tells what it must draw.

    python -m examples.miniature facts        # seconds; writes nothing

For every pair of facts that a clip shows, such as a motion and a raincoat, it counts the share P(b|a) of the clips with
the first that have the second. A share above `MOST` teaches a rule that the world does not have, unless it is meant.

A clip's evidence for a raincoat, a flag or the time of day is an instruction that names it, a turn of the window that
shows it or its absence, or a window that begins with the story, where nobody wears one and no place has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, permutations

from examples.miniature.story import STAYS, StoryScene
from examples.world.puppet_motions import COAT_OFF, COAT_ON, MOTIONS, PLANT
from flows.console.terminal import say
from models.config import GameModelConfig

MOST, FEWEST = 0.9, 30
"""Greatest share of an accident, and fewest clips with a fact for a share to mean something."""
Fact = tuple[str, str]
Story = Sequence[StoryScene]
"""A scene for each turn: scenes of two clips come twice."""
_COAT = "actor's coat"


@dataclass(frozen=True)
class Implied:
    """Share of the clips with one fact that have another."""

    given: Fact
    fact: Fact
    clips: int
    share: float

    @property
    def is_meant(self) -> bool:
        """True if the world has that rule: who takes a coat off wears it, and some motions need the room."""
        (_, motion), kinds = self.given, (self.given[0], self.fact[0])
        if kinds == ("motion", _COAT):
            return motion in (COAT_ON, COAT_OFF)
        if kinds == ("motion", "level"):
            return True
        return kinds == ("motion", "companion") and self.fact[1] == "nobody"

    def __str__(self) -> str:
        given, fact = (" ".join(each) for each in (self.given, self.fact))
        return f"P({fact} | {given}) = {self.share:.0%} of {self.clips} clips"


def turns_of(scenes: Iterable[StoryScene]) -> Iterator[Story]:
    """Yield the turns of each story."""
    for _, story in groupby(scenes, lambda scene: scene.story):
        yield [scene for scene in story for _ in range(scene.clips)]


def facts_of(scene: StoryScene) -> Iterator[Fact]:
    """Yield what a clip shows and its instruction names or leaves open."""
    cue = scene.cue
    yield "motion", cue.motion
    yield "level", str(cue.level)
    yield "actor", cue.actor
    yield "companion", cue.companion or "nobody"
    yield "place", scene.place
    yield "time", "night" if scene.night else "day"
    yield _COAT, "on" if cue.actor in cue.coats else "off"
    if cue.companion:
        yield "companion's coat", "on" if cue.companion in cue.coats else "off"
    if scene.shows_flag is not None:
        yield "flag", "there" if scene.shows_flag else "none"


def implications(scenes: Iterable[StoryScene]) -> list[Implied]:
    """Return the share of every pair of facts of different kinds, the greatest first."""
    alone: Counter[Fact] = Counter()
    together: Counter[tuple[Fact, Fact]] = Counter()
    for scene in scenes:
        facts = tuple(facts_of(scene))
        alone.update(dict.fromkeys(facts, scene.clips))
        together.update({pair: scene.clips for pair in permutations(facts, 2) if pair[0][0] != pair[1][0]})
    found = [
        Implied(given, fact, alone[given], count / alone[given])
        for (given, fact), count in together.items()
        if alone[given] >= FEWEST
    ]
    return sorted(found, key=lambda each: -each.share)


def evidence(stories: Iterable[Story], window: int) -> dict[str, list[bool]]:
    """Return for each fact that outlasts its turn, by target, whether the window of a target tells it.

    Args:
        window: turns of a window, the target included.
    """
    found: dict[str, list[bool]] = {}
    for story in stories:
        for number, target in enumerate(story):
            past = story[max(0, number - window + 1) : number]
            all_told = len(past) == number
            for name in target.characters if MOTIONS[target.cue.motion].coat is None else target.characters[1:]:
                told = all_told or any(name in turn.characters for turn in past)
                found.setdefault("raincoat on" if name in target.cue.coats else "raincoat off", []).append(told)
            if target.shows_flag is not None:
                told = all_told or any(_tells_flag(turn, target.place) for turn in past)
                found.setdefault("flag" if target.shows_flag else "no flag", []).append(told)
            found.setdefault("time of day", []).append(target.time_named or bool(past))
            found.setdefault("place", []).append(True)
    return found


def _tells_flag(turn: StoryScene, place: str) -> bool:
    return turn.place == place and (turn.cue.motion == PLANT or turn.shows_flag is not None)


def say_facts(scenes: Sequence[StoryScene]) -> None:
    """Print the accidents, the greatest shares that are none, and the evidence in the window."""
    every = [each for each in implications(scenes) if not each.is_meant]
    accidents = [each for each in every if each.share > MOST]
    stories, window = list(turns_of(scenes)), GameModelConfig.model_fields["window_turns"].default
    say(f"{len(stories)} stories, {len(scenes)} scenes, {sum(map(len, stories))} clips; {STAYS} scenes of each stay")
    say(f"{len(accidents)} pairs of facts above {MOST:.0%} that are not meant")
    for each in accidents or every[:5]:
        say(f"  {each}")
    told = evidence(stories, window)
    say(f"told by the window of {window} turns, of all targets:")
    kinds = (("raincoat", ("raincoat on", "raincoat off")), ("flag", ("flag", "no flag")))
    for kind, parts in (*kinds, ("time of day", ("time of day",)), ("place", ("place",))):
        both = [each for part in parts for each in told[part]]
        apart = ", ".join(f"{part} {_share(told[part])} of {len(told[part])}" for part in parts)
        say(f"  {kind}: {_share(both)} ({apart})")


def _share(values: Sequence[bool]) -> str:
    return f"{sum(values) / len(values):.1%}"
