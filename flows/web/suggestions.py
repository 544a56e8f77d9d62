"""Suggestions of what may happen next in a game under the rules: possible, trained, and unlike the last turn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flows.web.deeds import Deed
from flows.web.standings import OpenWish, Standing, Tale

_COUNT = 3
_TRIES = 60
"""Draws until one is possible. Bounded, since few pairs may be."""
_LOW = 30
"""Value below which a character needs help."""
_HELP = {"stamina": "rest", "social": "company", "entertainment": "fun"}
_COMPANY_SHARE = 0.35
_NEW_TIME_SHARE = 0.15


@dataclass(frozen=True)
class Suggestion:
    """Instruction to choose, and why."""

    instruction: str
    why: str = ""


def suggest(tale: Tale, standing: Standing, seed: str) -> tuple[Suggestion, ...]:
    """Return up to three suggestions after a standing: the first one for a wish, if one can be fulfilled now.

    Args:
        seed: the same seed gives the same suggestions.
    """
    dice = random.Random(seed)
    found: list[tuple[Deed, str]] = []
    for deed, why in _ideas(tale, standing, dice):
        unlike = all(deed.motion != other.motion and deed.place != other.place for other, _ in found)
        if unlike and len({deed.who[0], *(other.who[0] for other, _ in found)}) > min(1, len(found)):
            found.append((deed, why))
        if len(found) == _COUNT:
            break
    return tuple(Suggestion(deed.instruction, why) for deed, why in found)


def surprise(tale: Tale, standing: Standing, dice: random.Random) -> str | None:
    """Return a possible instruction at random, None if the checkpoint names no motions or characters."""
    deed = _drawn(tale, standing, dice, Deed())
    return deed.instruction if deed else None


def _ideas(tale: Tale, standing: Standing, dice: random.Random) -> Iterator[tuple[Deed, str]]:
    """Yield deeds with their reasons: for wishes, for somebody in need, and any."""
    for wish in dice.sample(standing.wishes, len(standing.wishes)):
        if deed := _drawn(tale, standing, dice, _towards(wish, tale, dice), wish):
            yield deed, f"{wish.who}'s wish"
            break
    lows = [(points, name, value) for name, each in standing.people.items() for value, points in each.values.items()]
    for _, name, value in sorted(low for low in lows if low[0] < _LOW):
        if deed := _helping(tale, standing, dice, name, value):
            yield deed, f"{name} needs {_HELP[value]}"
            break
    for _ in range(_TRIES):
        if deed := _drawn(tale, standing, dice, Deed()):
            yield deed, ""


def _towards(wish: OpenWish, tale: Tale, dice: random.Random) -> Deed:
    """Return what a turn must say to serve a wish; the rest is free."""
    told = wish.wish
    who: tuple[str, ...] = (wish.who,)
    if told.company or told.mood or told.different == "friends":
        others = [name for name in tale.script.characters if name != wish.who and name not in wish.seen]
        who = (wish.who, dice.choice(others)) if others else who
    return Deed(who, told.motion, told.place, told.time)


def _helping(tale: Tale, standing: Standing, dice: random.Random, name: str, value: str) -> Deed | None:
    """Return what gives a character most of a value, None if nothing does."""
    gains = {motion: getattr(tale.rules.motion(motion), value) for motion in tale.script.motions}
    for motion in sorted((motion for motion in gains if gains[motion] > 0), key=lambda each: -gains[each]):
        if deed := _drawn(tale, standing, dice, Deed((name,), motion)):
            return deed
    return None


def _drawn(
    tale: Tale, standing: Standing, dice: random.Random, wanted: Deed, wish: OpenWish | None = None
) -> Deed | None:
    """Return a random deed with the parts that are wanted, None if none was found that is possible and new."""
    script = tale.script
    if not script.motions or not (wanted.who or script.characters):
        return None
    seen = wish.seen if wish else ()
    for _ in range(_TRIES):
        who = wanted.who or (dice.choice(script.characters),)
        motion = wanted.motion or dice.choice(script.motions)
        place = wanted.place or (dice.choice(script.places) if script.places else "")
        deed = Deed(_company(tale, who, motion, dice), motion, place, wanted.time or _time(tale, standing, dice))
        if not {motion, place}.isdisjoint(seen) or not _is_possible(tale, standing, deed, wanted):
            continue
        return deed if deed.time != standing.deed.time else replace(deed, time="")
    return None


def _company(tale: Tale, who: tuple[str, ...], motion: str, dice: random.Random) -> tuple[str, ...]:
    """Return the characters of a deed: with a companion if the motion needs one, and at times if it may have one."""
    company = tale.rules.motion(motion).company
    others = [name for name in tale.script.characters if name not in who]
    alone = company == "none" or (company == "welcome" and dice.random() >= _COMPANY_SHARE)
    return who if len(who) > 1 or alone or not others else (*who, dice.choice(others))


def _time(tale: Tale, standing: Standing, dice: random.Random) -> str:
    """Return the time of day: as it is, at times another, and one for the first turn."""
    times: Sequence[str] = tale.script.times
    if times and (not standing.deed.time or dice.random() < _NEW_TIME_SHARE):
        return dice.choice(times)
    return standing.deed.time


def _is_possible(tale: Tale, standing: Standing, deed: Deed, wanted: Deed) -> bool:
    """Return whether a deed is allowed, trained, makes sense, and is not the last motion or place again."""
    rule, actor = tale.rules.motion(deed.motion), standing.people.get(deed.who[0])
    worn = actor.wears if actor else frozenset()
    company = rule.company != "none" if len(deed.who) > 1 else rule.company != "needed"
    dress = rule.puts_on not in worn and (not rule.takes_off or rule.takes_off in worn)
    new = deed.motion != standing.deed.motion and (deed.place != standing.deed.place or deed.place == wanted.place)
    return (
        company and dress and new and tale.script.trained(deed)
        and not tale.hindrance(standing, deed.who[0], deed.motion)
    )  # fmt: skip
