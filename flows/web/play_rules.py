"""Rules at work on the page: the standing after a turn, its suggestions and ending, as the page shows them.

GET  /api/standing                            suggestions for a first turn
GET  /api/games/ID/turns/TURN/standing        how the characters are, their wishes, and what may come next
"""

from __future__ import annotations

import random
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock

from pydantic import BaseModel

from flows.game.folder import GameFolder
from flows.game.records import TurnRecord
from flows.web.deeds import Deed, Script
from flows.web.rules import Rules
from flows.web.standings import OpenWish, Person, Ruling, Standing, Tale
from flows.web.suggestions import Suggestion, suggest, surprise
from models.config import ModelConfig
from pipeline.core.errors import UserError

MOST_KEPT = 50_000
"""Turns whose standings are kept in memory, in all games."""


class PersonNow(BaseModel):
    """Character as the page shows it."""

    name: str
    values: dict[str, int]
    changes: dict[str, int]
    mood: str
    shown: bool
    """In the picture of this turn."""


class WishNow(BaseModel):
    """Wish as the page shows it."""

    said: str
    done: int
    of: int
    left: int | None
    """Turns until it is given up."""


class Ending(BaseModel):
    """Story so far, for the end."""

    turns: int
    motions: int
    places: int
    fulfilled: tuple[str, ...]
    given_up: tuple[str, ...]


class StandingNow(BaseModel):
    """Standing after a turn, with what may come next."""

    people: tuple[PersonNow, ...] = ()
    who: tuple[str, ...] = ()
    """Characters in the picture; the first one acts."""
    wishes: tuple[WishNow, ...] = ()
    fulfilled: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    surprise: str | None = None
    hindered: dict[str, dict[str, str]] = {}
    """Reason for which a character cannot do a motion now, by both."""
    ending: Ending | None = None


@dataclass
class _Kept:
    """Standings of one game, by the id of their turn."""

    tale: Tale
    turns: dict[str, tuple[TurnRecord, Standing]] = field(default_factory=dict)


class Referee:
    """Rules of all games of a page. Standings are computed from the logs, once a turn, and some are kept in memory."""

    def __init__(self, rules: Rules, config: ModelConfig) -> None:
        self.rules = rules
        self.script = Script(config, tuple(rules.motions))
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = Lock()

    def ruling(self, folder: GameFolder, after: str | None, instruction: str) -> Ruling:
        """Return an instruction as it may be played after a turn. UserError if nothing may be played for it."""
        tale, standings = self.standings(folder)
        return tale.ruling(_at(tale, standings, after), instruction)

    def fulfilled(self, folder: GameFolder) -> dict[str, list[str]]:
        """Return the wishes that came true, by the turn in which they did."""
        _, standings = self.standings(folder)
        return {turn: list(map(said, now.fulfilled)) for turn, now in standings.items() if now.fulfilled}

    def opening(self) -> StandingNow:
        """Return suggestions for the first turn of a game that has not begun."""
        tale = Tale(self.rules, self.script, secrets.randbits(31))
        return _with_next(tale, Standing(), secrets.token_hex())

    def now(self, folder: GameFolder, turn: TurnRecord) -> StandingNow:
        """Return the standing after a turn."""
        tale, standings = self.standings(folder)
        now, before = standings[turn.id], _at(tale, standings, turn.parent)
        ends = self.rules.turns and now.number == self.rules.turns
        return _with_next(tale, now, f"{tale.seed} {turn.id}").model_copy(
            update={
                "people": tuple(_person(tale, name, before, now) for name in now.people),
                "who": now.deed.who,
                "wishes": tuple(_wish(tale, wish, now.number) for wish in now.wishes),
                "fulfilled": tuple(map(said, now.fulfilled)),
                "given_up": tuple(map(said, now.given_up)),
                "hindered": {name: dict(_hindrances(tale, now, name)) for name in now.people},
                "ending": _ending([standings[each.id] for each in folder.path_to(turn.id)]) if ends else None,
            }
        )

    def standings(self, folder: GameFolder) -> tuple[Tale, dict[str, Standing]]:
        """Return the standings after all turns of a game, by id; only new and changed turns are computed."""
        key = str(folder.path)
        with self._lock:
            kept = self._kept.pop(key, None) or _Kept(Tale(self.rules, self.script, folder.settings.seed))
            known, kept.turns = kept.turns, {}
            # Parents stand before their children in the log. A turn is known if it is unchanged and so is its parent.
            for turn in folder.turns:
                moved = turn.parent is not None and known.get(turn.parent) is not kept.turns[turn.parent]
                if turn.id in known and known[turn.id][0] == turn and not moved:
                    kept.turns[turn.id] = known[turn.id]
                    continue
                before = kept.turns[turn.parent][1] if turn.parent else kept.tale.start
                now = kept.tale.after(before, turn.instruction, turn.changes.model_dump())
                kept.turns[turn.id] = (turn, now)
            self._kept[key] = kept
            self._forget()
            return kept.tale, {turn: now for turn, (_, now) in kept.turns.items()}

    def _forget(self) -> None:
        """Drop the games that were asked for least recently, while there are too many turns."""
        while len(self._kept) > 1 and sum(len(each.turns) for each in self._kept.values()) > MOST_KEPT:
            self._kept.popitem(last=False)


def said(wish: OpenWish) -> str:
    """Return a wish as a sentence without its stop."""
    return f"{wish.who} wants {wish.wish.wants}"


def _at(tale: Tale, standings: dict[str, Standing], turn: str | None) -> Standing:
    return standings.get(turn or "", tale.start)


def _with_next(tale: Tale, now: Standing, seed: str) -> StandingNow:
    dice = random.Random(secrets.randbits(64))
    return StandingNow(suggestions=suggest(tale, now, seed), surprise=surprise(tale, now, dice))


def _wish(tale: Tale, wish: OpenWish, number: int) -> WishNow:
    return WishNow(said=said(wish), done=len(wish.seen), of=wish.wish.times, left=tale.left(wish, number))


def _person(tale: Tale, name: str, before: Standing, now: Standing) -> PersonNow:
    values, earlier = now.people[name].values, before.people.get(name, Person()).values
    changes = {value: points - earlier[value] for value, points in values.items() if points != earlier[value]}
    mood = tale.rules.mood_of(values)
    return PersonNow(name=name, values=values, changes=changes, mood=mood, shown=name in now.deed.who)


def _hindrances(tale: Tale, now: Standing, name: str) -> Iterator[tuple[str, str]]:
    """Yield each motion that a character cannot do after a standing, with the reason and what it does instead."""
    for motion in tale.rules.motions:
        if tale.hindrance(now, name, motion):
            try:
                yield motion, tale.ruling(now, Deed((name,), motion).instruction).note
            except UserError as error:
                yield motion, str(error)


def _ending(path: Sequence[Standing]) -> Ending:
    return Ending(
        turns=len(path),
        motions=len({now.deed.motion for now in path} - {""}),
        places=len({now.deed.place for now in path} - {""}),
        fulfilled=tuple(said(wish) for now in path for wish in now.fulfilled),
        given_up=tuple(said(wish) for now in path for wish in now.given_up),
    )
