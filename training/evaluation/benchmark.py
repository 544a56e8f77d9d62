"""Benchmark file: games that every agent plays, a line of JSON per panel.

    {"game": "ponyo-01", "turn": 1, "characters": ["Ponyo", "Sosuke"], "MD": "run", "MA": "quickly", "EV": "sea shore",
     "level": 4, "SC": 1, "ET": 1, "ST": -1}                                                      (on one line)

A panel is a turn of a game: its instruction, and the truth that an agent's turn is compared with. It has the tags of a
caption. Games follow each other, the panels of a game in order from turn 1. Only the first two values are required:
unknown values are not measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, faults_of
from prompts.tags import instruction


class BenchmarkError(UserError):
    """A benchmark file cannot be used; the message names the line and the remedy."""


class Panel(Record):
    """One turn of a benchmark's game; None means not known and not measured."""

    game: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", description="name of the game; also a folder's name")
    turn: int = Field(ge=1)
    characters: tuple[str, ...] = Field((), description="characters on screen, beginning with the acting one")
    S: str | None = Field(None, description="a noun for the subject, if `characters` is empty")
    MD: str | None = Field(None, description="motion")
    MA: str | None = Field(None, description="manner, an adverb")
    EV: str | None = Field(None, description="environment")
    level: int | None = Field(None, ge=1, le=5, description="motion level")
    SC: Literal[0, 1] | None = None
    ET: Literal[0, 1] | None = None
    ST: Literal[-1, 1] | None = None
    words: str | None = Field(None, description="instruction in free words, instead of the line made from the tags")
    clip_id: str | None = Field(None, description="clip of the dataset that is the truth of the turn")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.instruction:
            raise ValueError("no instruction: give characters, S, MD or EV, or words")
        return self

    @property
    def instruction(self) -> str:
        """The instruction that agents play."""
        return self.words or instruction(self.characters, self.S, self.MD, self.EV, self.MA)


@dataclass(frozen=True)
class BenchmarkGame:
    """A game: its panels in order, turns 1, 2, ..."""

    name: str
    panels: tuple[Panel, ...]

    @property
    def character(self) -> str | None:
        """The game's protagonist, who acts first in most panels; None without characters."""
        first = [panel.characters[0] for panel in self.panels if panel.characters]
        return max(dict.fromkeys(first), key=first.count, default=None)


@dataclass(frozen=True)
class Benchmark:
    """Games in the order of their file."""

    games: tuple[BenchmarkGame, ...]
    sha256: str
    """Of the file's content."""

    @property
    def characters(self) -> tuple[str, ...]:
        """All characters, in the order of their first appearance."""
        return tuple(dict.fromkeys(name for game in self.games for panel in game.panels for name in panel.characters))


def read_benchmark(path: Path) -> Benchmark:
    """Read a benchmark file; blank lines are skipped.

    Raises:
        BenchmarkError: the file cannot be read, a line is not a panel, or a game's turns are not 1, 2, ... in a row.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BenchmarkError(f"{path} cannot be read ({error.strerror}); give a benchmark file") from error
    panels = [_panel(path, number, line) for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
    if not panels:
        raise BenchmarkError(f"{path} holds no game; write one with `animegamer benchmark write`")
    return Benchmark(_games_of(path, panels), hashlib.sha256(content).hexdigest())


def write_benchmark(path: Path, panels: Sequence[Panel]) -> tuple[BenchmarkGame, ...]:
    """Write a benchmark file, atomically, and return its games. DiskError if the file cannot be written."""
    with replacing(path) as temporary, disk_errors(path):
        temporary.write_text(text_of(panels), encoding="utf-8")
    return _games_of(path, panels)


def text_of(panels: Iterable[Panel]) -> str:
    """Return the text of a benchmark file, without the keys that have no value."""
    return "".join(f"{panel.model_dump_json(exclude_defaults=True)}\n" for panel in panels)


def _games_of(path: Path, panels: Sequence[Panel]) -> tuple[BenchmarkGame, ...]:
    games = [BenchmarkGame(name, tuple(group)) for name, group in groupby(panels, key=lambda panel: panel.game)]
    names = [game.name for game in games]
    for game in games:
        turns = [panel.turn for panel in game.panels]
        if names.count(game.name) > 1 or turns != list(range(1, len(turns) + 1)):
            raise BenchmarkError(f"{path}: the turns of game {game.name} are not 1, 2, ... in a row; put them in order")
    return tuple(games)


def _panel(path: Path, number: int, line: bytes) -> Panel:
    try:
        return Panel.model_validate_json(line, strict=False)
    except ValidationError as error:
        raise BenchmarkError(f"{path}, line {number}: {faults_of(error)}") from error
