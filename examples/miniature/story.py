"""Stories of the world in miniature: scenes drawn at random under rules, the true captions, and the pairs held out.

A story is about two or three characters and two or three places. `STAYS` of its scenes stay at the place of the scene
before and begin where that one ended; the others show another place, and places recur. Three facts outlast the turn
that names them, and come in any order. The time of day is named at the start of a story and when it changes. A raincoat
is worn from the turn in which it is put on, by anybody. A flag stays at the place where it was planted; a story has two
or three. What no caption tells is drawn from a seed of the scene (`staging.py`).

Three kinds of pairs are held out: a character with a motion or in a place, and a motion in a place. Stories of `seen`
pairs have none of them, every scene of an `unseen` story has exactly one, and the other stories have any.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from examples.miniature.staging import NOTHING, VISIBLE, Ended, Surroundings, staged, surround
from examples.world.characters import CAST
from examples.world.puppet_motions import COAT_OFF, COAT_ON, FRAMES_PER_DRAWING, HUG, MOTIONS, PLANT, Cue
from examples.world.puppets import FLAG_REACH, FLAG_WIDTH
from examples.world.scene import Scene, Sprites
from examples.world.scenery import PLACES, Scenery, flags_in
from examples.world.truth import SOURCE
from pipeline.captions.rules import ADVERBS
from pipeline.core.records import Caption

Kind = Literal["character x motion", "character x place", "motion x place"]
Pairs = Literal["seen", "unseen", "any"]
CLIP_FRAMES, MARGIN_FRAMES = 48, 6
"""Film frames from a clip to the next, and of a scene beyond its clips."""
ONCE, REPEATED = 8, 10
"""Scenes of a story whose motion happens once, of one clip, and whose motion is repeated, of two clips."""
STAYS = 7
"""Scenes of a story that stay at the place of the scene before: 40% of those that could."""
BREAK_FRAMES, END_FRAMES = 12, 60
"""Black frames before a scene that stays, since a cut must be seen, and after a story, so that no window spans two."""
_FRAMES = CLIP_FRAMES * (ONCE + 2 * REPEATED) + MARGIN_FRAMES * (ONCE + REPEATED) + BREAK_FRAMES * STAYS + END_FRAMES
STORY_SECONDS = _FRAMES / 24
_RETURNS = 0.8
"""Share of the moves that go back to the place before, as far as they have a choice."""
_COAT, _REST, _OFF_SHARE = "coat", "rest", 0.4
"""Deed that is a coat put on or, in this share of cases, taken off."""
_REPEATED = tuple(name for name, motion in MOTIONS.items() if not motion.once)
_ONCE = ("sit down", "fall over", HUG)
"""Motions that happen once and change nothing that lasts."""
_LASTING = {COAT_ON, COAT_OFF, PLANT}
_SOCIAL, _RESTS = {HUG}, {HUG, "sit down"}
_FUN = {"dance", "spin", "jump", "run", "fly on a broom", "swing a sword", "wave"}
WATCHED = {"jump", "wave", "dance", "spin", "walk", "swing a sword", "sit down", HUG}
"""Motions that a companion may watch: they keep clear of it, and the camera stays."""
_NUMBERS = {name: number for names in (CAST, (*_REPEATED, *_ONCE), PLACES) for number, name in enumerate(names)}


@dataclass(frozen=True)
class StoryScene:
    """Scene of a story."""

    cue: Cue
    place: str
    night: bool = False
    flag: float | None = None
    """Position of the flag that was planted here before."""
    time_named: bool = False
    story: int = 0
    stays: bool = False
    """True if it begins where the scene before ended."""
    surroundings: Surroundings = NOTHING

    @property
    def characters(self) -> tuple[str, ...]:
        """The actor, then the companion."""
        return (self.cue.actor, self.cue.companion) if self.cue.companion else (self.cue.actor,)

    @property
    def clips(self) -> int:
        """Number of its clips."""
        return 1 if MOTIONS[self.cue.motion].once else 2

    @property
    def frames(self) -> int:
        """Its length in film frames."""
        return CLIP_FRAMES * self.clips + MARGIN_FRAMES

    @property
    def held_out(self) -> tuple[Kind, ...]:
        """Kinds of held-out pairs in it."""
        return held_out(self.cue, self.place)

    @property
    def shows_flag(self) -> bool | None:
        """True if a planted flag is in the picture; None if only in part or at times."""
        if self.flag is None:
            return None if self.cue.motion == PLANT else False
        if MOTIONS[self.cue.motion].followed:
            return None
        box = self.cue.look(0)
        least, most = (box[0] + edge for edge in VISIBLE)
        poles = flags_in(self.flag, box)
        if any(least + FLAG_WIDTH < pole < most for pole in poles):
            return True
        return None if any(least < pole < most + FLAG_WIDTH for pole in poles) else False

    @property
    def ended(self) -> Ended:
        """Its end, where a scene that stays begins."""
        return Ended.of(self.cue, self.surroundings, self.frames)

    def drawn(self, name: str) -> Scene:
        """The scene for the composer."""
        scenery = Scenery(self.place, tuple(CAST.items()), self.night, self.flag, self.surroundings.clouds)
        camera: Literal["pan", "static"] = "pan" if MOTIONS[self.cue.motion].followed else "static"
        return Scene(
            name, self.frames, scenery, self._sprites, FRAMES_PER_DRAWING, self.cue.motion, camera, self.cue.look
        )

    def _sprites(self, drawing: int) -> Sprites:
        return *self.surroundings.drawn(drawing), *self.cue.draw(drawing)

    def caption(self, clip_id: str, level: int) -> Caption:
        """The true tags of one of its clips; `level`, its measured motion level, gives the manner."""
        motion, time = self.cue.motion, ("night " if self.night else "daytime ") if self.time_named else ""
        return Caption(
            clip_id=clip_id,
            source=SOURCE,
            S="girl" if CAST[self.cue.actor].girl else "boy",
            MD=motion,
            EV=f"{time}{self.place}",
            MA=ADVERBS[level],
            SC=1 if self.cue.companion and motion in {*_SOCIAL, "wave"} else 0,
            ET=1 if motion in _FUN else 0,
            ST=1 if motion in _RESTS else -1,
            characters=self.characters,
            actor=self.cue.actor,
            others=0,
        )


def held_out(cue: Cue, place: str) -> tuple[Kind, ...]:
    """Return the kinds of held-out pairs in a scene of this cue at a place.

    Held out are one or two motions of each character, one place of each character and one place of each motion.
    """
    return _held_out(cue.actor, cue.companion, cue.motion, place)


@cache
def _held_out(actor: str, companion: str | None, motion: str, place: str) -> tuple[Kind, ...]:
    kinds: list[Kind] = []
    number, count = _NUMBERS.get(motion), len(_REPEATED) + len(_ONCE)
    if number is not None and number in {_NUMBERS[actor] % count, (3 * _NUMBERS[actor] + 5) % count}:
        kinds.append("character x motion")
    if any(_NUMBERS[name] % len(PLACES) == _NUMBERS[place] for name in (actor, companion) if name):
        kinds.append("character x place")
    if number is not None and (number + 2) % len(PLACES) == _NUMBERS[place]:
        kinds.append("motion x place")
    return tuple(kinds)


@dataclass
class Scriptwriter:
    """Writer of stories that uses everything equally often."""

    seed: str
    pairs: Pairs = "seen"
    used: Counter[object] = field(default_factory=Counter)
    """Uses so far; writers that share it use everything equally often together."""
    stories: int = 0

    def story(self) -> tuple[StoryScene, ...]:
        """Return the next story."""
        scenes = tuple(_Story(self, random.Random(f"{self.seed} {self.stories}")).scenes())
        self.stories += 1
        return scenes

    def allows(self, cue: Cue, place: str) -> bool:
        """Return whether its stories may have a scene."""
        return self.pairs == "any" or len(held_out(cue, place)) == (self.pairs == "unseen")


@dataclass
class _Story:
    """State of a story while it is written."""

    writer: Scriptwriter
    dice: random.Random
    coats: frozenset[str] = frozenset()
    flags: dict[str, float] = field(default_factory=dict)
    """Position of the flag at each place that has one."""
    names: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    """Places of the story, the last one first."""
    deeds: list[str] = field(default_factory=list)
    """Kinds of what will happen once, in order if possible."""
    seen: set[str] = field(default_factory=set)
    last: StoryScene | None = None

    def scenes(self) -> Iterator[StoryScene]:
        dice, night = self.dice, self.dice.random() < 0.5
        self.names = self._least_used(tuple(CAST), dice.choice((2, 3)))
        self.places = self._least_used(tuple(PLACES), dice.choice((2, 3)))
        self.deeds = self._deeds()
        turns = [True] * ONCE + [False] * REPEATED
        dice.shuffle(turns)
        stays, changes = {*dice.sample(range(1, len(turns)), STAYS)}, dice.randrange(6, 13)
        for number, once in enumerate(turns):
            night = night != (number == changes)
            scene = self._scene(once=once, stays=number in stays)
            yield replace(scene, night=night, time_named=number in (0, changes))
            self._remember(scene)

    def _least_used(self, names: Sequence[str], count: int) -> tuple[str, ...]:
        chosen = tuple(sorted(names, key=lambda name: (self.writer.used["story", name], self.dice.random()))[:count])
        self.writer.used.update(("story", name) for name in chosen)
        return chosen

    def _deeds(self) -> list[str]:
        """Return what happens once in the story: flags, coats, and what does not last."""
        lasting = [PLANT] * self.dice.randint(2, len(self.places)) + [_COAT] * 3
        deeds = [*lasting, *[_REST] * (ONCE - len(lasting))]
        self.dice.shuffle(deeds)
        return deeds

    def _scene(self, *, once: bool, stays: bool) -> StoryScene:
        """Return the scene of the cue that was used least, among those possible."""
        places, others = self._next_places(stays=stays), _ONCE if once else _REPEATED
        free = [place for place in places if place not in self.flags]
        deed = next((each for each in self.deeds if free or each != PLANT), _REST) if once else ""
        if deed in self.deeds:
            self.deeds.remove(deed)
        # where a story of held-out pairs has no such scene, another deed will do, and then other characters
        possible = (
            self._possible(self._motions(deed), places, self.names)
            or self._possible(others, places, self.names)
            or self._possible(others, places, tuple(CAST))
        )
        cue, place = min(possible, key=lambda each: self._uses(*each))
        ended = self.last.ended if self.last and stays else None
        surroundings = ended.surroundings if ended else surround(place, self.dice)
        cue = staged(cue, self.dice, ended)
        return StoryScene(
            cue, place, flag=self.flags.get(place), story=self.writer.stories, stays=stays, surroundings=surroundings
        )

    def _next_places(self, *, stays: bool) -> Sequence[str]:
        """Return the same place, or others: new ones first, later often the one before, whose flag is not forgotten."""
        if stays or not self.seen:
            return self.places[:1]
        new = [place for place in self.places if place not in self.seen]
        return new or (self.places[1:2] if self.dice.random() < _RETURNS else self.places[1:])

    def _motions(self, deed: str) -> Sequence[str]:
        if deed == _COAT:
            return [COAT_OFF] if self.coats and self.dice.random() < _OFF_SHARE else [COAT_ON]
        return [PLANT] if deed == PLANT else _ONCE if deed == _REST else _REPEATED

    def _possible(self, motions: Sequence[str], places: Sequence[str], names: Sequence[str]) -> list[tuple[Cue, str]]:
        """Return what may come next, in random order."""
        pairs = [(cue, place) for place in places for cue in self._cues(motions, names)]
        self.dice.shuffle(pairs)
        return [
            (cue, place)
            for cue, place in pairs
            if self.writer.allows(cue, place) and not (cue.motion == PLANT and place in self.flags)
        ]

    def _cues(self, motions: Sequence[str], names: Sequence[str]) -> Iterator[Cue]:
        for motion in motions:
            _, level = min((self.writer.used[motion, level], level) for level in MOTIONS[motion].steps)
            for actor in names:
                if motion in (COAT_ON, COAT_OFF) and (actor in self.coats) != (motion == COAT_OFF):
                    continue
                for companion in (None, *names):
                    if motion != HUG if companion is None else motion in WATCHED and companion != actor:
                        yield Cue(actor, motion, level, companion, self.coats)

    def _uses(self, cue: Cue, place: str) -> tuple[int, ...]:
        """Return the uses of what the scene shows, weighed by how much each matters."""
        used, kinds = self.writer.used, held_out(cue, place) if self.writer.pairs == "unseen" else ()
        shown = ((cue.actor, cue.motion), (cue.motion, place), (cue.actor, place))
        uses = 2 * used["motion", cue.motion] + sum(used[it] for it in shown)
        if cue.motion in WATCHED - {HUG}:  # three scenes with a companion for two without
            uses += (2 if cue.companion else 3) * used["company", cue.motion, bool(cue.companion)]
        return used[kinds] if kinds else 0, uses

    def _remember(self, scene: StoryScene) -> None:
        cue, place, motion = scene.cue, scene.place, MOTIONS[scene.cue.motion]
        self.last = scene
        self.seen.add(place)
        self.places = (place, *(other for other in self.places if other != place))
        if motion.coat is not None:
            self.coats = self.coats | {cue.actor} if motion.coat else self.coats - {cue.actor}
        if cue.motion == PLANT:
            self.flags[place] = cue.staging.actor_x - FLAG_REACH
        self.writer.used.update(
            [held_out(cue, place), (cue.motion, cue.level), ("motion", cue.motion), (cue.actor, cue.motion),
             (cue.motion, place), (cue.actor, place), ("company", cue.motion, bool(cue.companion))]
        )  # fmt: skip
