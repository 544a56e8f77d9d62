"""Records of a game folder: `game.json`, and the lines of `turns.jsonl`.

An incomplete last line, left by a killed process, is ignored; any other fault in the log is reported with its line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from pydantic import Field, ValidationError

from models.acceleration import is_compiled, precision_name
from models.checkpoint import Checkpoint
from models.engine import device_of
from models.engine_options import EngineOptions, FrameDecoder, Sampler
from models.tokens import State
from models.turns import Turn
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.plain_text import counted
from pipeline.core.records import Record, faults_of


class GameError(UserError):
    """A game folder cannot be used as requested; the message names the file and the remedy."""


UNRECORDED = "not recorded"
"""Precision of games begun before it was recorded."""


class GameSettings(Record):
    """`game.json`: the settings of every turn of the game."""

    schema_version: Literal[1] = 1
    seed: int = Field(0, ge=0, description="the same seed and instructions give the same game")
    steps: int = Field(50, ge=1, description="denoising steps")
    guidance: float = Field(6.0, ge=0, description="strength with which the shot tokens are followed")
    sampler: Sampler = Field("sde", description="sampler of the shots")
    guided: tuple[int, int] = Field((0, 999), description="first and last timestep with guidance")
    precision: str = Field(UNRECORDED, description="floating-point formats of the networks")
    compile: bool = Field(False, description="the networks were compiled")
    frames: FrameDecoder = Field("full", description="decoder of the frames")
    checkpoint: str = Field(description="identity of the checkpoint")
    window_turns: int = Field(ge=1, description="turns that the game model sees, the one to predict included")
    fps: int = Field(ge=1, description="frames per second of the shots")

    @classmethod
    def of(cls, checkpoint: Checkpoint, options: EngineOptions, seed: int = 0) -> GameSettings:
        """Return the settings of a game with a checkpoint.

        Raises:
            UserError: the checkpoint is incomplete, or `steps` does not divide 1000.
        """
        config, device = checkpoint.config, device_of(options.device)
        return cls(
            seed=seed,
            **options.sampling_of(config).model_dump(),
            precision=precision_name(options, device),
            compile=is_compiled(options, device),
            frames=options.frames,
            checkpoint=checkpoint.identity(),
            window_turns=config.game_model.window_turns,
            fps=config.shot_decoder.fps,
        )

    def unlike(self, other: GameSettings) -> str | None:
        """Return the name of the first setting in which another game differs, None if it can continue this one."""
        return next((name for name, own in self if own not in (getattr(other, name), UNRECORDED)), None)


class Changes(Record):
    """Changes of the character values by a turn: in steps of 5 points, before clamping to 0..100."""

    stamina: int
    social: int
    entertainment: int


class CharacterValues(Record):
    """Character values after a turn, 0 to 100."""

    stamina: int = Field(ge=0, le=100)
    social: int = Field(ge=0, le=100)
    entertainment: int = Field(ge=0, le=100)


class TurnRecord(Record):
    """Turn record: one line of `turns.jsonl`."""

    id: str = Field(pattern=r"^\d{4,}(-\d+)?$", description="number of the turn, and `-N` for its N-th further branch")
    parent: str | None = Field(description="id of the turn before; null for a first turn")
    number: int = Field(ge=1, description="1 for the first turn of a game")
    instruction: str
    level: int = Field(ge=1, le=5, description="motion level")
    scope_px: float = Field(description="motion scope that the level stands for")
    changes: Changes
    values: CharacterValues
    seconds: dict[str, float] = Field(description="duration of each part")
    first_frame_seconds: float | None = Field(None, description="from the instruction to the first frames")
    device: str = Field("", description="name of the GPU or CPU that drew it")
    memory_bytes: int | None = Field(None, description="peak of the turn; measured in evaluation")
    continues: bool = Field(False, description="the shot continues the one before, by a model that can")

    @property
    def state(self) -> State:
        """State of the turn, as the game model reads it."""
        return State(self.level, self.changes.social, self.changes.entertainment, self.changes.stamina)


@dataclass(frozen=True)
class TurnCost:
    """Cost of a turn, measured in evaluation."""

    first_frame_seconds: float
    """From the instruction to the first frame, unless the agent measures it itself."""
    memory_bytes: int
    """Peak memory of the GPU; without one, of the process."""
    device: str


def id_of(number: int, branch: int) -> str:
    """Return the id of the turn with a number, of a branch from 0: `0003`, then `0003-1`."""
    return f"{number:04d}-{branch}" if branch else f"{number:04d}"


def record_of(turn: Turn, turn_id: str, parent: str | None, cost: TurnCost | None = None) -> TurnRecord:
    """Return the record of a turn that was just drawn."""
    state, first_frame = turn.state, turn.first_frame_seconds
    if first_frame is None and cost:
        first_frame = cost.first_frame_seconds
    return TurnRecord(
        id=turn_id,
        parent=parent,
        number=turn.number,
        instruction=turn.instruction,
        level=state.level,
        scope_px=turn.scope_px,
        changes=Changes(stamina=state.stamina, social=state.social, entertainment=state.entertainment),
        values=CharacterValues(**asdict(turn.values)),
        seconds={part: round(taken, 3) for part, taken in turn.seconds.items()},
        first_frame_seconds=None if first_frame is None else round(first_frame, 3),
        device=turn.device or (cost.device if cost else ""),
        memory_bytes=cost.memory_bytes if cost else None,
        continues=turn.continues,
    )


class _Drawn(Protocol):
    """Turn whose agent may have measured the time to its first frames."""

    @property
    def first_frame_seconds(self) -> float | None: ...

    @property
    def device(self) -> str: ...


def waited(turns: Iterable[_Drawn]) -> str:
    """Return a sentence per device on the time to the first frames in 95% of the turns; empty if none is known."""
    seconds: dict[str, list[float]] = {}
    for turn in turns:
        if turn.device and turn.first_frame_seconds is not None:
            seconds.setdefault(turn.device, []).append(turn.first_frame_seconds)
    return " ".join(
        f"95% of {counted(len(known), 'turn')} showed a frame within {np.quantile(known, 0.95):.2f} s, on {device}."
        for device, known in seconds.items()
    )


def read_log(path: Path) -> tuple[dict[str, TurnRecord], int]:
    """Return the turns by id, and the offset of the end of the last complete line, in bytes.

    Raises:
        GameError: a line is damaged or out of order.
        DiskError: the file cannot be read.
    """
    with disk_errors(path):
        content = path.read_bytes() if path.exists() else b""
    return parse_log(content, str(path))


def parse_log(content: bytes, name: str) -> tuple[dict[str, TurnRecord], int]:
    """Return the same as `read_log`, given the content of the log and the name of its file."""
    whole = content[: content.rfind(b"\n") + 1]
    turns: dict[str, TurnRecord] = {}
    for number, line in enumerate(whole.split(b"\n"), start=1):
        if not line.strip():
            continue
        remedy = f"delete it and what follows, and the game resumes from the turns before (there are {len(turns)})"
        try:
            record = TurnRecord.model_validate_json(line)
        except ValidationError as error:
            raise GameError(f"{name}, line {number} is damaged ({faults_of(error)}): {remedy}") from error
        if record.id in turns or record.number != _number_after(turns, record.parent):
            raise GameError(f"{name}, line {number} is damaged (turn {record.id} is out of order): {remedy}")
        turns[record.id] = record
    return turns, len(whole)


def _number_after(turns: dict[str, TurnRecord], parent: str | None) -> int | None:
    """Return the number of a turn after `parent`; None if there is no such parent."""
    if parent is None:
        return 1
    return turns[parent].number + 1 if parent in turns else None
