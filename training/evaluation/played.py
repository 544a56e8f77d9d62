"""Played games: the turns of an agent as evaluation reads them, from game folders or any folder of mp4 files.

    GAMES/<agent>/<game>/turns.jsonl     a line per turn; may be missing: then the mp4 files by name, in natural order
    GAMES/<agent>/<game>/0001.mp4 ...

The lines are those of a game folder; of a line only `id` is required, which begins with the turn's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, faults_of
from training.evaluation.benchmark import Panel


class PlayedError(UserError):
    """Games that cannot be read; the message names the game and the remedy."""


class PlayedChanges(Record):
    """Changes of the character values that an agent predicted."""

    stamina: Literal[-1, 1]
    social: Literal[0, 1]
    entertainment: Literal[0, 1]


class PlayedLine(Record):
    """Line of `turns.jsonl`, as far as evaluation uses it; None: the agent does not say."""

    model_config = ConfigDict(extra="ignore")

    id: str = Field(pattern=r"^\d{1,9}(-\d+)?$")
    instruction: str | None = None
    level: int | None = Field(None, ge=1, le=5)
    changes: PlayedChanges | None = None
    seconds: dict[str, float] = Field(default_factory=dict)
    first_frame_seconds: float | None = Field(None, ge=0, description="from the instruction to the first frame")
    memory_bytes: int | None = Field(None, ge=0, description="peak of the device, or of the process on a CPU")


@dataclass(frozen=True)
class PlayedTurn:
    """A turn that an agent has played, beside the panel it was asked for."""

    agent: str
    panel: Panel
    clip: Path
    """Its animation shot, an mp4."""
    line: PlayedLine

    @property
    def seconds(self) -> float | None:
        """Duration of the turn; None: not known."""
        return sum(self.line.seconds.values()) if self.line.seconds else None

    def without_changes(self) -> PlayedTurn:
        """Return the turn of an agent whose changes of the character values are constants, and no prediction."""
        return replace(self, line=self.line.model_copy(update={"changes": None}))


def read_game(agent: str, panels: Sequence[Panel], folder: Path) -> list[PlayedTurn]:
    """Return the turns in a game folder, in order; none where the game has not been begun.

    An incomplete last line, left by a killed process, is ignored; a complete one counts without a newline too.

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
            raise PlayedError(
                f"{log}, line {number}: damaged ({faults_of(error)}); delete the game's folder"
            ) from error
        turn = int(line.id.split("-")[0])
        if not 1 <= turn <= len(panels):
            raise PlayedError(f"{log}, line {number}: the benchmark has no turn {turn} of this game; delete the folder")
        turns.append(PlayedTurn(agent, panels[turn - 1], folder / f"{line.id}.mp4", line))
    return turns


def _is_torn(error: ValidationError) -> bool:
    """Return True if a line is no JSON, as every beginning of an object."""
    return error.errors()[0]["type"] == "json_invalid"
