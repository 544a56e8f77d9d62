"""Deeds: who does what, where and when by an instruction, and which of it training showed together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from flows.web.understanding import Reader
from models.config import ModelConfig
from models.turns import INSTRUCTION_LINE, TIMES

_KEPT = 4096
_MOST_NAMES = 8
"""Characters of one turn that count; others are passers-by."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Meaning of an instruction; an empty text where it says nothing."""

    who: tuple[str, ...] = ()
    """The first one acts."""
    motion: str = ""
    place: str = ""
    """Without the time of day."""
    time: str = ""

    @property
    def background(self) -> str:
        """Place with its time of day."""
        return f"{self.time} {self.place}" if self.time and self.place else self.place

    @property
    def instruction(self) -> str:
        """The line that is played."""
        fields = {"Character": ", ".join(self.who), "Motion": self.motion, "Background": self.background}
        return "; ".join(f"{name}: {text}" for name, text in fields.items() if text) + "."


NOTHING = Deed()


class Script:
    """Characters, motions, places and times of a checkpoint, which of them it met together, and a reader of deeds.

    Args:
        motions: more motions that an instruction may name.
    """

    def __init__(self, config: ModelConfig, motions: tuple[str, ...] = ()) -> None:
        self.characters, self.motions = config.characters, config.motions
        self.times = tuple(time for time in TIMES if any(place.startswith(f"{time} ") for place in config.places))
        self.places = tuple(place for place in config.places if self._split(place)[0] == "")
        self._backgrounds = frozenset(config.places)
        self._together = {word: frozenset(others) for word, others in config.together.items()}
        self._known = frozenset(self._together).union(*self._together.values())
        self._reader = Reader(config, motions)
        self._names = {name.casefold(): name for name in config.characters}
        self.deed = lru_cache(_KEPT)(self._deed)

    def _deed(self, instruction: str) -> Deed:
        """Return what an instruction says; in a line of fields, new characters count too."""
        found = self._reader.named(instruction)
        who, motion, place, time = (found.get(kind, []) for kind in ("character", "motion", "place", "time"))
        background = ""
        if line := INSTRUCTION_LINE.fullmatch(instruction.strip()):
            names = [name.strip() for name in (line["characters"] or "").split(",")]
            who = list(dict.fromkeys(self._names.get(name.casefold(), name) for name in names if name))
            background = self._split(line["background"] or "")[1]
        return Deed(tuple(who[:_MOST_NAMES]), *(next(iter(each), "") for each in (motion, place or [background], time)))

    def met(self, one: str, other: str) -> bool:
        """Return whether training showed two words together, a place at any time; True if it says nothing of one."""
        others = [other, *(f"{time} {other}" for time in self.times)] if other in self.places else [other]
        if one not in self._known or self._known.isdisjoint(others):
            return True
        return not self._together.get(one, frozenset()).isdisjoint(others)

    def trained(self, deed: Deed) -> bool:
        """Return whether training showed every pair of a deed: its actor with the motion, and all with the place."""
        place = deed.background
        if deed.place in self.places and place not in self._backgrounds:
            return False
        pairs = [(name, place) for name in deed.who] + [(deed.motion, place)]
        pairs += [(name, deed.motion) for name in deed.who[:1]]
        return all(self.met(one, other) for one, other in pairs if one and other)

    def _split(self, background: str) -> tuple[str, str]:
        """Return time of day and place of a background."""
        time = next((time for time in self.times if background.startswith(f"{time} ")), "")
        return time, background[len(time) :].strip()
