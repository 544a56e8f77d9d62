"""Stories of the world in miniature: scenes drawn at random under rules, the true captions, and the pairs held out.

A story is about two characters and three places. Every scene shows another place than the scene before, and places
recur. Three facts outlast the turn that names them. The time of day is named at the start of a story and when it
changes. A raincoat is worn from the turn in which it is put on. A flag stays at the place where it was planted. The cue
alone determines where puppets stand and how they move.

Three kinds of pairs are held out: a character with a motion or in a place, and a motion in a place. Stories for
training have none of them, and every scene of the other stories has exactly one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from examples.world.puppet_motions import COAT_OFF, COAT_ON, FRAMES_PER_DRAWING, HUG, MOTIONS, PLANT, Cue
from examples.world.puppets import CAST
from examples.world.scene import Scene
from examples.world.scenery import PLACES, Scenery
from examples.world.truth import SOURCE
from pipeline.captions.rules import ADVERBS
from pipeline.core.records import Caption

Kind = Literal["character x motion", "character x place", "motion x place"]
CLIP_FRAMES, MARGIN_FRAMES = 48, 6
"""Film frames from a clip to the next, and of a scene beyond its clips."""
ONCE, REPEATED = 8, 10
"""Scenes of a story whose motion happens once, of one clip, and whose motion is repeated, of two clips."""
STORY_SECONDS = (CLIP_FRAMES * (ONCE + 2 * REPEATED) + MARGIN_FRAMES * (ONCE + REPEATED)) / 24
_ALONE = {"fly on a broom": "Mika", "swing a sword": "Haru"}
"""Motions of one character in training."""
_NOT_BY = {"jump": "Mika", "sit down": "Mika", "dance": "Haru", "fall over": "Haru",
           "run": "Yuki", "spin": "Yuki", "walk": "Kuro", "wave": "Kuro"}  # fmt: skip
_NOT_SEEN_AT = {"Mika": "snowy hill", "Haru": "shrine", "Yuki": "city street", "Kuro": "beach"}
_NOT_DONE_AT = {"walk": "classroom", "run": "shrine", "jump": "city street", "wave": "beach", "dance": "snowy hill",
                "spin": "meadow", "fall over": "classroom", "sit down": "shrine", "fly on a broom": "snowy hill",
                "swing a sword": "shrine"}  # fmt: skip
"""Place where each motion is never trained; for a motion of one character, the place where it never is."""
_REPEATED = tuple(name for name, motion in MOTIONS.items() if not motion.once)
_ONCE = ("sit down", "fall over", HUG)
"""Motions that happen once and change nothing that lasts."""
_SOCIAL, _RESTS = {HUG}, {HUG, "sit down"}
_FUN = {"dance", "spin", "jump", "run", "fly on a broom", "swing a sword", "wave"}


@dataclass(frozen=True)
class StoryScene:
    """Scene of a story."""

    cue: Cue
    place: str
    night: bool
    flagged: bool
    """True if a flag was planted here before."""
    time_named: bool
    story: int

    @property
    def characters(self) -> tuple[str, ...]:
        """The actor, then the companion."""
        return (self.cue.actor, self.cue.companion) if self.cue.companion else (self.cue.actor,)

    @property
    def clips(self) -> int:
        """Number of its clips."""
        return 1 if MOTIONS[self.cue.motion].once else 2

    @property
    def held_out(self) -> tuple[Kind, ...]:
        """Kinds of held-out pairs in it."""
        return held_out(self.cue, self.place)

    def drawn(self, name: str) -> Scene:
        """The scene for the composer."""
        return Scene(
            name,
            CLIP_FRAMES * self.clips + MARGIN_FRAMES,
            Scenery(self.place, tuple(CAST.items()), self.night, self.flagged),
            self.cue.draw,
            FRAMES_PER_DRAWING,
            self.cue.motion,
            "pan" if self.cue.look else "static",
            self.cue.look,
        )

    def caption(self, clip_id: str, level: int) -> Caption:
        """The true tags of one of its clips; `level`, its measured motion level, gives the manner."""
        motion, time = self.cue.motion, ("night " if self.night else "daytime ") if self.time_named else ""
        return Caption(
            clip_id=clip_id,
            source=SOURCE,
            S="girl" if self.cue.actor in ("Mika", "Yuki") else "boy",
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
    """Return the kinds of held-out pairs in a scene of this cue at a place."""
    characters = {cue.actor, cue.companion}
    kinds: list[Kind] = []
    if _NOT_BY.get(cue.motion) == cue.actor or _ALONE.get(cue.motion, cue.actor) != cue.actor:
        kinds.append("character x motion")
    if any(_NOT_SEEN_AT.get(name or "") == place for name in characters):
        kinds.append("character x place")
    if _NOT_DONE_AT.get(cue.motion) == place:
        kinds.append("motion x place")
    return tuple(kinds)


@dataclass
class Scriptwriter:
    """Writer of stories that uses everything equally often."""

    seed: str
    unseen: bool = False
    """True for stories in which every scene has exactly one held-out pair."""
    used: Counter[object] = field(default_factory=Counter)
    stories: int = 0
    place: str = ""
    """Place of the last scene."""

    def story(self) -> tuple[StoryScene, ...]:
        """Return the next story."""
        dice = random.Random(f"{self.seed} {self.stories}")
        scenes = tuple(_Story(self, dice).scenes())
        self.stories += 1
        return scenes


@dataclass
class _Story:
    """State of a story while it is written."""

    writer: Scriptwriter
    dice: random.Random
    coats: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    pair: tuple[str, ...] = ()
    """The main character and the other."""
    done: list[str] = field(default_factory=list)
    """Motions that happened once."""

    def scenes(self) -> Iterator[StoryScene]:
        dice, night = self.dice, self.dice.random() < 0.5
        self.pair = tuple(dice.sample(list(CAST), 2))
        places = dice.sample(list(PLACES), 3)
        turns = [True] * ONCE + [False] * REPEATED
        dice.shuffle(turns)
        changes = dice.randrange(6, 13)
        for number, once in enumerate(turns):
            if number == changes:
                night = not night
            cue, place = self._next(once, places)
            yield StoryScene(cue, place, night, place in self.flags, number in (0, changes), self.writer.stories)
            self._remember(cue, place)

    def _next(self, once: bool, places: list[str]) -> tuple[Cue, str]:
        """Return the cue and place that were used least, among those possible."""
        possible = self._possible(self._motions(once), places)
        if not possible:
            possible = self._possible(_ONCE if once else _REPEATED, list(PLACES))
        return min(possible, key=lambda each: self._uses(*each))

    def _possible(self, motions: Sequence[str], places: list[str]) -> list[tuple[Cue, str]]:
        """Return what may come next, in random order."""
        pairs = [(cue, place) for place in places if place != self.writer.place for cue in self._cues(motions)]
        self.dice.shuffle(pairs)
        return [
            (cue, place)
            for cue, place in pairs
            if len(held_out(cue, place)) == self.writer.unseen and not (cue.motion == PLANT and place in self.flags)
        ]

    def _motions(self, once: bool) -> Sequence[str]:
        """Motions that may come next; a coat and a flag come early, so that later turns need them."""
        if not once:
            return _REPEATED
        main, count = self.pair[0], len(self.done)
        if COAT_ON not in self.done and count >= 1:
            return [COAT_ON]
        if PLANT not in self.done and count >= 2:
            return [PLANT]
        if main in self.coats and count >= 5 and COAT_OFF not in self.done:
            return [COAT_OFF]
        return _ONCE

    def _cues(self, motions: Sequence[str]) -> Iterator[Cue]:
        main, other = self.pair
        for motion in motions:
            for level in MOTIONS[motion].steps:
                for actor, companion in ((main, None), (main, other), (other, None), (other, main)):
                    fits = motion != HUG if companion is None else motion in _WATCHED
                    if fits and not (motion in (COAT_ON, COAT_OFF, PLANT) and actor != main):
                        yield Cue(actor, motion, level, companion, self.coats)

    def _uses(self, cue: Cue, place: str) -> tuple[int, ...]:
        """Return the uses of what the scene shows, weighed by how much each matters."""
        used, company, kinds = self.writer.used, self._company(cue), held_out(cue, place)
        shown = ((cue.actor, cue.motion), (cue.motion, place), (cue.actor, place))
        return (
            used[kinds] if kinds else 0,
            2 * used[cue.motion, cue.level] + sum(used[pair] for pair in shown) + company * used["company", company],
        )

    def _company(self, cue: Cue) -> int:
        """Return how rare the scene's company should be: 1 the main character alone, up to 4 the other, watched."""
        return (2 if cue.companion else 1) * (1 if cue.actor == self.pair[0] else 2)

    def _remember(self, cue: Cue, place: str) -> None:
        self.writer.place = place
        motion = MOTIONS[cue.motion]
        if motion.coat is not None:
            self.coats = self.coats | {cue.actor} if motion.coat else self.coats - {cue.actor}
        if cue.motion == PLANT:
            self.flags |= {place}
        if motion.once:
            self.done.append(cue.motion)
        self.writer.used.update(
            [held_out(cue, place), (cue.motion, cue.level), (cue.actor, cue.motion), (cue.motion, place),
             (cue.actor, place), ("company", self._company(cue))]
        )  # fmt: skip


_WATCHED = {"jump", "wave", "dance", "spin", "walk", "swing a sword", "sit down", HUG}
"""Motions that a companion may watch: they keep clear of it, and the camera stays."""
