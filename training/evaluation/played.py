"""Played games: the turns of an agent as evaluation reads them, from game folders or any folder of mp4 files.

    GAMES/<agent>/<game>/turns.jsonl     a line per turn; may be missing: then the mp4 files by name, in natural order
    GAMES/<agent>/<game>/0001.mp4 ...

The lines are those of a game folder; of a line only `id` is required.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from pipeline.core.records import Record
from training.evaluation.benchmark import Panel


class PlayedChanges(Record):
    """Changes of the character values that an agent predicted."""

    stamina: Literal[-1, 1]
    social: Literal[0, 1]
    entertainment: Literal[0, 1]


class PlayedLine(Record):
    """Line of `turns.jsonl`, as far as evaluation uses it; None: the agent does not say."""

    model_config = ConfigDict(extra="ignore")

    id: str
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
