"""Understanding of a player's words: the instruction in the words of the training data, and the words it does not have.

    reader = Reader(config)
    reader.read("The boy with blue hair sprints by the sea", first=True).instruction
    # Character: Haru; Motion: run; Background: daytime beach.

Only a checkpoint with a table of other words (`ModelConfig.other_words`) is read: its world is closed. One on a large
language model knows more words than any table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from models.config import ModelConfig
from models.turns import TIMES
from pipeline.captions.rules import ADVERBS

Kind = Literal["character", "motion", "manner", "place", "time"]
Stems = tuple[str, ...]

_SIMILAR = 0.9
"""Least likeness of a misspelt word, as `difflib` measures it; its first letter must be right."""
_LEAST_LETTERS = 5


@dataclass(frozen=True)
class Reading:
    """Meaning of an instruction."""

    instruction: str
    """Text that is played."""
    unknown: tuple[str, ...] = ()
    """Words that the model does not know."""
    left_out: tuple[str, ...] = ()
    """Meanings that are not played: a second motion or place, or a time without a place."""


class Reader:
    """Reader of instructions for one checkpoint, which may name more motions than its configuration."""

    def __init__(self, config: ModelConfig, motions: Iterable[str] = ()) -> None:
        self._active = bool(config.other_words)
        self._times = tuple(time for time in TIMES if any(place.startswith(f"{time} ") for place in config.places))
        words: dict[str, tuple[Kind, str]] = {}
        for manner in ADVERBS.values():
            words[manner] = ("manner", manner)
        for place in config.places:
            if not place.startswith(tuple(f"{time} " for time in self._times)):
                words[place] = ("place", place)
        words |= {time: ("time", time) for time in self._times}
        words |= {motion: ("motion", motion) for motion in (*motions, *config.motions)}
        words |= {name: ("character", name) for name in config.characters}
        words |= {other: words[meant] for other, meant in config.other_words.items() if meant in words}
        self._phrases = {stems_of(phrase): meant for phrase, meant in words.items()}
        self._longest = max(map(len, self._phrases), default=0)
        self._single = [stems[0] for stems in self._phrases if len(stems) == 1]

    def read(self, instruction: str, *, first: bool) -> Reading:
        """Return an instruction in the words of the training data; as it is if it names no known motion.

        Args:
            first: the first turn of a game; its time of day is day unless it says another.
        """
        if not self._active:
            return Reading(instruction)
        found, left_out, unknown = self._found(instruction)
        if "motion" not in found:
            return Reading(instruction, unknown)
        if first and "place" in found and self._times:
            found.setdefault("time", [self._times[0]])
        if "place" not in found:
            left_out += tuple(found.get("time", ()))
        return Reading(_line(found), unknown, left_out)

    def named(self, text: str) -> dict[Kind, list[str]]:
        """Return the meanings of a text by kind, in order; only characters may be several. Misspelt words have none."""
        return self._found(text, guess=False)[0]

    def _found(
        self, instruction: str, *, guess: bool = True
    ) -> tuple[dict[Kind, list[str]], tuple[str, ...], tuple[str, ...]]:
        """Return the meanings found, by kind, those that come second, and the words without one."""
        words = [word for word in _words(instruction) if word not in _DETERMINERS]
        stems, at = [_stem(word) for word in words], 0
        found: dict[Kind, list[str]] = {}
        left_out: list[str] = []
        unknown: list[str] = []
        while at < len(words):
            # 1. The longest phrase that begins here, else a word that is nearly one.
            length = next((n for n in range(self._longest, 0, -1) if tuple(stems[at : at + n]) in self._phrases), 0)
            key: Stems | None = tuple(stems[at : at + length]) if length else None
            if guess and not key:
                key = self._similar(words[at], stems[at])
            # 2. A picture has one motion, place and time: the first counts.
            if key:
                kind, meant = self._phrases[key]
                known = found.setdefault(kind, [])
                if meant not in known:
                    (known if kind == "character" or not known else left_out).append(meant)
            elif words[at] not in _PASSED:
                unknown.append(words[at])
            at += max(length, 1)
        return found, tuple(dict.fromkeys(left_out)), tuple(dict.fromkeys(unknown))

    def _similar(self, word: str, stem: str) -> Stems | None:
        if len(word) < _LEAST_LETTERS or word in _PASSED:
            return None
        alike = [single for single in self._single if single[0] == stem[0]]
        near = difflib.get_close_matches(stem, alike, 1, _SIMILAR)
        return (near[0],) if near else None


def stems_of(phrase: str) -> Stems:
    """Return the stems of a phrase without its determiners: `puts on her raincoat` as `put on a raincoat`."""
    return tuple(_stem(word) for word in _words(phrase) if word not in _DETERMINERS)


def _words(text: str) -> Sequence[str]:
    return re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())


_DETERMINERS = frozenset(_words("a an the his her their its my our your some this that"))
_PASSED = frozenset(
    _words(
        "character motion background and with at in on by to into onto near from of over under along across through "
        "around before after during then now again is are be it he she they him them who as while there here i we you "
        "let should wants want goes go does do next scene shot very up down together"
    )
)
"""Words without a meaning for the picture."""


def _stem(word: str) -> str:
    """Return a word without the endings of English verbs and plurals."""
    for ending in ("ing", "ies", "es", "ed", "s"):
        left = word[: -len(ending)]
        if word.endswith(ending) and not word.endswith("ss") and (ending == "ies" or re.search("[aeiouy]", left)):
            word = left + "y" * (ending == "ies")
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word.removesuffix("e")


def _line(found: dict[Kind, list[str]]) -> str:
    motion = " ".join(found.get("manner", []) + found["motion"])
    place = " ".join(found.get("time", []) + found["place"]) if "place" in found else ""
    parts = {"Character": ", ".join(found.get("character", [])), "Motion": motion, "Background": place}
    return "; ".join(f"{name}: {text}" for name, text in parts.items() if text) + "."
