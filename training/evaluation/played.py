"""Played games: the turns of an agent as evaluation reads them, from game folders or any folder of mp4 files.

    GAMES/<agent>/<game>/turns.jsonl     a line per turn; may be missing: then the mp4 files by name, in natural order
    GAMES/<agent>/<game>/0001.mp4 ...

Lines have the format of a game folder. Only `id` is required, which begins with the turn's number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, faults_of
from training.evaluation.benchmark import Panel


class PlayedError(UserError):
    """Games cannot be read; the message names the game and the remedy."""


class PlayedChanges(Record):
    """Changes of the character values that an agent predicted."""

    stamina: Literal[-1, 1]
    social: Literal[0, 1]
    entertainment: Literal[0, 1]


class PlayedLine(Record):
    """The part of a line of `turns.jsonl` that evaluation uses; None if the agent does not report a value."""

    model_config = ConfigDict(extra="ignore")

    id: str = Field(pattern=r"^\d{1,9}(-\d+)?$")
    instruction: str | None = None
    level: int | None = Field(None, ge=1, le=5)
    changes: PlayedChanges | None = None
    seconds: dict[str, float] = Field(default_factory=dict)
    first_frame_seconds: float | None = Field(None, ge=0, description="from the instruction to the first frame")
    device: str = Field("", description="name of the GPU or CPU that drew the turn")
    memory_bytes: int | None = Field(None, ge=0, description="peak of the device, or of the process on a CPU")

    @property
    def turn(self) -> int:
        """Number of the turn."""
        return int(self.id.split("-")[0])


@dataclass(frozen=True)
class PlayedTurn:
    """A turn that an agent has played, with the panel that it was asked to play."""

    agent: str
    panel: Panel
    clip: Path
    """Its animation shot, an mp4."""
    line: PlayedLine

    @property
    def seconds(self) -> float | None:
        """Duration of the turn; None if unknown."""
        return sum(self.line.seconds.values()) if self.line.seconds else None

    def without_changes(self) -> PlayedTurn:
        """Return the turn without changes, for an agent that reports constants instead of predictions."""
        return replace(self, line=self.line.model_copy(update={"changes": None}))


def read_game(agent: str, panels: Sequence[Panel], folder: Path) -> list[PlayedTurn]:
    """Return the turns in a game folder of an evaluation, in order; none if the game has not begun.

    Raises:
        PlayedError: a line is damaged, or a turn is not in the benchmark.
        DiskError: the log cannot be read.
    """
    turns, remedy = [], "delete the game's folder, and it is played again"
    for number, line in read_lines(folder, remedy).items():
        if not 1 <= line.turn <= len(panels):
            raise no_turn(folder, number, line, remedy)
        turns.append(PlayedTurn(agent, panels[line.turn - 1], folder / f"{line.id}.mp4", line))
    return turns


def no_turn(folder: Path, number: int, line: PlayedLine, remedy: str) -> PlayedError:
    """Return the error of a line whose turn the benchmark's game does not have."""
    where = f"{folder / 'turns.jsonl'}, line {number}"
    return PlayedError(f"{where}: the benchmark has no turn {line.turn} of this game; {remedy}")


def read_lines(folder: Path, remedy: str) -> dict[int, PlayedLine]:
    """Return the lines of a game's log by their number, in order; none without a log.

    An incomplete last line, left by a killed process, is ignored. A complete last line needs no newline.

    Args:
        remedy: what to do about a damaged line.

    Raises:
        PlayedError: a line is damaged.
        DiskError: the log cannot be read.
    """
    log = folder / "turns.jsonl"
    with disk_errors(log):
        content = log.read_bytes() if log.exists() else b""
    found, lines = dict[int, PlayedLine](), content.splitlines()
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            found[number] = PlayedLine.model_validate_json(text)
        except ValidationError as error:
            if number == len(lines) and not content.endswith(b"\n") and _is_torn(error):
                break
            raise PlayedError(f"{log}, line {number} is damaged ({faults_of(error)}); {remedy}") from error
    return found


def _is_torn(error: ValidationError) -> bool:
    """Return whether a line is not JSON, like every incomplete object."""
    return error.errors()[0]["type"] == "json_invalid"


def content_hash(clip: Path) -> str:
    """Return the SHA-256 of a clip file. UserError if the file cannot be read."""
    try:
        return hashlib.sha256(clip.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{clip} cannot be read ({error.strerror}); play the game again, or copy the file") from error
