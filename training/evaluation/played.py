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
    """Return the turns in a game folder, in order; none if the game has not begun.

    An incomplete last line, left by a killed process, is ignored. A complete last line needs no newline.

    Raises:
        PlayedError: a line is damaged, or a turn is not in the benchmark.
        DiskError: the log cannot be read.
    """
    log = folder / "turns.jsonl"
    with disk_errors(log):
        content = log.read_bytes() if log.exists() else b""
    turns, lines = [], content.splitlines()
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            line = PlayedLine.model_validate_json(text)
        except ValidationError as error:
            if number == len(lines) and not content.endswith(b"\n") and _is_torn(error):
                break
            reason = f"is damaged ({faults_of(error)}); delete the game's folder"
            raise PlayedError(f"{log}, line {number} {reason}") from error
        turn = int(line.id.split("-")[0])
        if not 1 <= turn <= len(panels):
            raise PlayedError(f"{log}, line {number}: the benchmark has no turn {turn} of this game; delete the folder")
        turns.append(PlayedTurn(agent, panels[turn - 1], folder / f"{line.id}.mp4", line))
    return turns


def _is_torn(error: ValidationError) -> bool:
    """Return whether a line is not JSON, like every incomplete object."""
    return error.errors()[0]["type"] == "json_invalid"


def content_hash(clip: Path) -> str:
    """Return the SHA-256 of a clip file. UserError if the file cannot be read."""
    try:
        return hashlib.sha256(clip.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{clip} cannot be read ({error.strerror}); play the game again, or copy the file") from error
