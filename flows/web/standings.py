"""Standing of a game after each turn under the rules: how the characters are, and what they wish for.

    tale = Tale(rules, Script(config, tuple(rules.motions)), seed)
    standing = tale.after(tale.start, "Character: Mika; Motion: run; Background: beach.", changes)
    standing.people["Mika"].stamina

A standing is computed from the log alone: the same seed, rules and turns give the same standing, on every branch and
after every restart. It is immutable, and shares what a turn leaves unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from flows.web.deeds import NOTHING, Deed, Script
from flows.web.rules import START, VALUES, MotionRule, Needs, Points, Rules, Wish
from models.turns import POINTS
from pipeline.core.errors import UserError

_MEMORY = 3
"""Last motions of a character that are not new."""
_MOST_PEOPLE = 64
"""Characters of a game whose values are kept; those that come later have none."""
_APART = 2
"""Turns between the ends of the first wishes."""
_LACKING = {
    "stamina": ("tired", "Rest, or let others act: stamina comes back."),
    "social": ("lonely", "Company helps."),
    "entertainment": ("bored", "Something new helps."),
}
"""Word for a character that lacks a value, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Person:
    """Character of a game."""

    stamina: int = START
    social: int = START
    entertainment: int = START
    recent: tuple[str, ...] = ()
    """Its last motions, the newest last."""
    wears: frozenset[str] = frozenset()

    @property
    def values(self) -> dict[str, int]:
        """The three values by name."""
        return {name: getattr(self, name) for name in VALUES}

    def lacks(self, needs: Needs) -> str | None:
        """Return the name of the first value that is below what is needed, None if none is."""
        return next((name for name, value in self.values.items() if value < getattr(needs, name)), None)


@dataclass(frozen=True, slots=True)
class OpenWish:
    """Wish of a character that has not come true yet."""

    who: str
    wish: Wish
    opened: int = 0
    """Turn after which it was opened."""
    seen: tuple[str, ...] = ()
    """Turns that have counted so far, one entry each."""


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Standing of a game after a turn."""

    number: int = 0
    people: Mapping[str, Person] = field(default_factory=dict)
    """Characters that have appeared, in order."""
    deed: Deed = NOTHING
    """Last deed; who, where and when as they still hold."""
    wishes: tuple[OpenWish, ...] = ()
    opened: int = 0
    """Wishes that were opened so far."""
    fulfilled: tuple[OpenWish, ...] = ()
    """Wishes that came true in this turn."""
    given_up: tuple[OpenWish, ...] = ()
    """Wishes that were given up in this turn."""


class Ruling(NamedTuple):
    """Instruction as the rules allow it."""

    instruction: str
    note: str = ""
    """Reason for another motion; empty if none is played."""


class Tale:
    """Game under the rules.

    Args:
        seed: of the game; decides the order of the wishes.
    """

    def __init__(self, rules: Rules, script: Script, seed: int) -> None:
        self.rules, self.script, self.seed = rules, script, seed
        self._round = lru_cache(4)(self._shuffled)

    @cached_property
    def start(self) -> Standing:
        """Standing before the first turn. Its wishes end one after another."""
        start = self._with_wishes(Standing())
        later = tuple(replace(wish, opened=_APART * place) for place, wish in enumerate(start.wishes))
        return replace(start, wishes=later)

    def after(self, before: Standing, instruction: str, predicted: Mapping[str, int]) -> Standing:
        """Return the standing after one more turn.

        Args:
            predicted: changes of the values as the model predicts them, in steps of 5 points.
        """
        told, last = self.script.deed(instruction), before.deed
        # 1. What an instruction leaves unsaid stays as it was; a motion ends with its turn.
        deed = Deed(told.who or last.who, told.motion, told.place or last.place, told.time or last.time)
        # 2. Everybody who has appeared changes, in the picture or not.
        newcomers = [name for name in deed.who if name not in before.people]
        room = max(0, _MOST_PEOPLE - len(before.people))
        people = {**before.people, **dict.fromkeys(newcomers[:room], Person())}
        points = Points(**{name: POINTS * by for name, by in predicted.items()})
        people = {name: self._later(name, person, deed, points) for name, person in people.items()}
        # 3. Wishes count with the values after the turn; those that come true, or are given up, make room for others.
        wishes = [self._counted(wish, deed, people.get(wish.who)) for wish in before.wishes]
        fulfilled = tuple(wish for wish in wishes if len(wish.seen) >= wish.wish.times)
        waiting = [wish for wish in wishes if wish not in fulfilled]
        given_up = tuple(wish for wish in waiting if self.left(wish, before.number + 1) == 0)
        for ended, points in ((fulfilled, self.rules.wish), (given_up, self.rules.given_up)):
            for wish in ended:
                if person := people.get(wish.who):
                    people[wish.who] = _moved(person, [points])
        kept = tuple(wish for wish in waiting if wish not in given_up)
        return self._with_wishes(Standing(before.number + 1, people, deed, kept, before.opened, fulfilled, given_up))

    def left(self, wish: OpenWish, number: int) -> int | None:
        """Return how many turns are left for a wish after a number of turns; None if it is never given up."""
        return wish.opened + self.rules.patience - number if self.rules.patience else None

    def ruling(self, standing: Standing, instruction: str) -> Ruling:
        """Return an instruction as it may be played after a standing.

        Raises:
            UserError: the character cannot do it now, nor anything in its place; the message says why.
        """
        deed = self.script.deed(instruction)
        who = deed.who or standing.deed.who
        reason = self.hindrance(standing, who[0], deed.motion) if who else ""
        if not reason:
            return Ruling(instruction)
        other = self.instead(standing, replace(deed, who=who, place=deed.place or standing.deed.place))
        if other is None:
            raise UserError(reason)
        return Ruling(replace(deed, motion=other).instruction, f"{reason} {who[0]} will {other} instead.")

    def hindrance(self, standing: Standing, name: str, motion: str) -> str:
        """Return why a character cannot do a motion now, and what helps; empty if it can."""
        person, needs = standing.people.get(name), self.rules.motion(motion).needs
        lacking = person.lacks(needs) if person else None
        if not person or not lacking:
            return ""
        word, help_ = _LACKING[lacking]
        value, least = person.values[lacking], getattr(needs, lacking)
        return f"{name} is too {word} to {motion}: {lacking} is {value}, and {least} is needed. {help_}"

    def instead(self, standing: Standing, deed: Deed) -> str | None:
        """Return the motion that the actor of a deed does in its place, None if there is none."""
        for motion in self.rules.motion(deed.motion).instead:
            if self.script.trained(replace(deed, motion=motion)) and not self.hindrance(standing, deed.who[0], motion):
                return motion
        return None

    def _later(self, name: str, person: Person, deed: Deed, predicted: Points) -> Person:
        rules, rule = self.rules, self.rules.motion(deed.motion)
        points = [rules.every_turn]
        if name not in deed.who:
            return _moved(person, [*points, rules.outside])
        if len(deed.who) > 1:
            points.append(rules.company)
        if name != deed.who[0] and rule.company != "needed":
            return _moved(person, points)  # looks on
        points += [rule, predicted]
        if deed.motion and deed.motion not in person.recent:
            points.append(rules.new)
        elif deed.motion and deed.motion == person.recent[-1]:
            points.append(rules.again)
        return _dressed(_moved(person, points), deed.motion, rule)

    def _counted(self, wish: OpenWish, deed: Deed, person: Person | None) -> OpenWish:
        """Return a wish after a turn, with one more count if the turn fits it."""
        mood = self.rules.mood_of(person.values) if person else ""
        if not person or not _fits(wish, deed, mood):
            return wish
        fresh = [each for each in _counts(wish, deed) if each == "" or each not in wish.seen]
        return replace(wish, seen=(*wish.seen, *fresh)[: wish.wish.times])

    def _with_wishes(self, standing: Standing) -> Standing:
        """Return a standing with as many open wishes as the rules say."""
        wishes, opened, count = list(standing.wishes), standing.opened, len(self._possible)
        if len(wishes) >= min(self.rules.open_wishes, count):
            return standing
        for place in range(opened, opened + min(self.rules.open_wishes, count) - len(wishes)):
            wishes.append(OpenWish(*self._round(place // count)[place % count], standing.number))
        return replace(standing, wishes=tuple(wishes), opened=opened + len(wishes) - len(standing.wishes))

    def _shuffled(self, number: int) -> list[tuple[str, Wish]]:
        """Return the wishes of a round in random order, neighbours of different characters and kinds if possible."""
        left = random.Random(f"{self.seed} {number}").sample(self._possible, len(self._possible))
        ordered: list[tuple[str, Wish]] = []
        while left:
            last = ordered[-max(1, self.rules.open_wishes) :]
            ordered.append(min(left, key=lambda each: sum((each[0] == who) + (each[1] is wish) for who, wish in last)))
            left.remove(ordered[-1])
        return ordered

    @cached_property
    def _possible(self) -> list[tuple[str, Wish]]:
        """Characters with the wishes that training has shown them fulfilling."""
        return list(_possible_wishes(self.rules, self.script))


def _possible_wishes(rules: Rules, script: Script) -> Iterator[tuple[str, Wish]]:
    for wish in rules.wishes:
        for name in [wish.who] if wish.who else script.characters:
            known = (wish.motion in (*script.motions, ""), wish.place in (*script.places, ""))
            lone = len(script.characters) < 2 and (wish.company or wish.different == "friends")
            if all(known) and not lone and script.trained(Deed((name,), wish.motion, wish.place, wish.time)):
                yield name, wish


def _fits(wish: OpenWish, deed: Deed, mood: str) -> bool:
    told, acts = wish.wish, deed.who[:1] == (wish.who,)
    pairs = ((told.motion, deed.motion), (told.place, deed.place), (told.time, deed.time), (told.mood, mood))
    is_in = acts or (wish.who in deed.who and not told.motion) or bool(told.mood)
    return is_in and all(asked in ("", done) for asked, done in pairs) and (not told.company or len(deed.who) > 1)


def _counts(wish: OpenWish, deed: Deed) -> list[str]:
    """Return what a turn that fits adds: names that count once each, or one empty text."""
    different: Mapping[Literal["", "motions", "places", "friends"], list[str]] = {
        "": [""],
        "motions": [deed.motion] if deed.who[:1] == (wish.who,) else [],
        "places": [deed.place],
        "friends": [name for name in deed.who if name != wish.who],
    }
    return [each for each in different[wish.wish.different] if each or not wish.wish.different]


def _moved(person: Person, points: list[Points]) -> Person:
    return Person(
        _kept(person.stamina + sum(each.stamina for each in points)),
        _kept(person.social + sum(each.social for each in points)),
        _kept(person.entertainment + sum(each.entertainment for each in points)),
        person.recent,
        person.wears,
    )


def _kept(value: int) -> int:
    return min(100, max(0, value))


def _dressed(person: Person, motion: str, rule: MotionRule) -> Person:
    worn = (person.wears | {rule.puts_on}) - {rule.takes_off, ""}
    recent = (*person.recent, motion)[-_MEMORY:] if motion else person.recent
    return replace(person, recent=recent, wears=worn)
