"""Chance of scenes that no caption tells: where puppets stand, the phase of a motion, clouds and passers-by.

A scene that stays at its place begins where the last one ended: with the same camera and clouds, everybody who was
there at the same position, and the passers-by on their way. Only somebody who would leave the picture, or stand in the
way of the motion, begins elsewhere.

Of two who were not there together, the actor, whom the caption names first, stands on the left. The squared error of
shot tokens makes the game model predict the mean of both orders, if a caption does not tell which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from examples.world.passers_by import COLOURS, FLYING, HORIZON, PasserBy
from examples.world.puppet_motions import FRAMES_PER_DRAWING, HUG, MOTIONS, PLANT, Cue, Staging
from examples.world.scenery import PERIOD, Cloud

VISIBLE = (27.0, 293.0)
"""Part of the camera's box that a clip of 3:2 shows, of a film of 16:9."""
_COMPANION_ROOM = 34.0
_APART = {HUG: (82.0, 100.0)}
"""Distance of actor and companion; the speed of a hug is right for these."""
_FARTHEST = 160.0
_SPREAD = 0.3
"""Part of a range, around its middle, that new positions and distances are drawn from. In trials on single
pictures, a small shot decoder drew fewer of the characters that may be anywhere (`docs/results/miniature.md`)."""
_KINDS = {
    "meadow": ("dog", "butterfly", "walker", "bird", "balloon"),
    "beach": ("dog", "bird", "walker", "balloon"),
    "city street": ("walker", "cat", "dog", "bird"),
    "classroom": ("walker", "cat", "butterfly"),
    "snowy hill": ("walker", "dog", "bird"),
    "shrine": ("cat", "walker", "butterfly", "bird"),
}
"""Passers-by of each place."""
_PASSERS_BY, _CLOUDS = (0, 0, 1, 1, 1, 2), (0, 4)
_TRIES = 20


@dataclass(frozen=True)
class Surroundings:
    """Clouds and passers-by of a scene."""

    clouds: tuple[Cloud, ...] = ()
    passers_by: tuple[PasserBy, ...] = ()

    def drawn(self, drawing: int) -> tuple[PasserBy, ...]:
        """Return the passers-by of a drawing."""
        return tuple(one.after(drawing) for one in self.passers_by)


NOTHING = Surroundings()


@dataclass(frozen=True)
class Ended:
    """End of a scene: where everybody stands, the camera, and what is around."""

    positions: Mapping[str, float]
    left: float
    surroundings: Surroundings

    @classmethod
    def of(cls, cue: Cue, surroundings: Surroundings, frames: int) -> Ended:
        """Return the end of a scene of some frames, moved back by whole periods of the place."""
        left = cue.look(frames - 1)[0]
        back, last = PERIOD * (left // PERIOD), (frames - 1) // FRAMES_PER_DRAWING
        moved = tuple(replace(one, x=one.x - back) for one in surroundings.drawn(last))
        positions = {sprite.name: sprite.x - back for sprite in cue.draw(last)}
        return cls(positions, left - back, replace(surroundings, passers_by=moved))


def surround(place: str, dice: Random) -> Surroundings:
    """Return new surroundings at a place."""
    clouds = tuple(
        (dice.uniform(0, PERIOD), dice.uniform(14, 58), dice.uniform(9, 18)) for _ in range(dice.randint(*_CLOUDS))
    )
    return Surroundings(clouds, tuple(_passer_by(place, dice) for _ in range(dice.choice(_PASSERS_BY))))


def _passer_by(place: str, dice: Random) -> PasserBy:
    kind, mirrored = dice.choice(_KINDS[place]), dice.random() < 0.5
    step = dice.choice((0.0, 0.0, dice.uniform(0.4, 1.1)))  # else they slow the motion that is measured
    return PasserBy(
        "", kind, dice.uniform(35, 285), dice.uniform(*FLYING.get(kind, HORIZON)), dice.uniform(0.7, 0.95), mirrored,
        dice.choice(COLOURS[kind]), -step if mirrored else step, dice.uniform(0, 6),
    )  # fmt: skip


def staged(cue: Cue, dice: Random, before: Ended | None = None) -> Cue:
    """Return a cue with its chance.

    Args:
        before: end of the scene before, if this one stays at its place.
    """
    known, left = (before.positions, before.left) if before else ({}, 0.0)
    tried = [_drawn(cue, dice, known, left) for _ in range(_TRIES if known else 1)]
    return replace(cue, staging=min(tried, key=lambda staging: _jump(cue, staging, known)))


def _drawn(cue: Cue, dice: Random, known: Mapping[str, float], left: float) -> Staging:
    """Draw a staging in which everybody has room; who is known stays if possible."""
    motion, companion = MOTIONS[cue.motion], cue.companion or ""
    # 1. Who stands on which side: new pairs as the caption names them. A hug goes towards the companion.
    right = not {cue.actor, companion} <= known.keys() or known[companion] > known[cue.actor]
    mirrored = dice.random() < 0.5 and cue.motion != PLANT
    if cue.motion == HUG:
        mirrored = not right
    room = list(motion.room[::-1] if mirrored else motion.room)
    # 2. How far apart.
    apart = 0.0
    if companion:
        widest = VISIBLE[1] - VISIBLE[0] - room[not right] - _COMPANION_ROOM
        least, most = _APART.get(cue.motion, (room[right] + _COMPANION_ROOM, min(widest, _FARTHEST)))
        wanted = abs(known[companion] - known[cue.actor]) if {cue.actor, companion} <= known.keys() else 0.0
        apart = _limited(wanted or _near_middle(dice, least, most), least, most)
        room[right] = max(room[right], apart + _COMPANION_ROOM)
    # 3. Where, inside the picture.
    low, high = left + VISIBLE[0] + room[0], left + VISIBLE[1] - room[1]
    side = -1 if mirrored else 1
    phase = 0.0 if motion.once else dice.uniform(0, motion.period)
    offset = side * motion.pose(phase)[0]
    actor_x = _limited(known[cue.actor] - offset if cue.actor in known else _near_middle(dice, low, high), low, high)
    return Staging(actor_x, actor_x + (apart if right else -apart), mirrored, phase, left)


def _near_middle(dice: Random, low: float, high: float) -> float:
    middle, reach = (low + high) / 2, _SPREAD * (high - low) / 2
    return dice.uniform(middle - reach, middle + reach)


def _limited(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _jump(cue: Cue, staging: Staging, known: Mapping[str, float]) -> float:
    """Return by how much those who were there are elsewhere."""
    first = replace(cue, staging=staging).draw(0)
    return sum(abs(sprite.x - known[sprite.name]) for sprite in first if sprite.name in known)
