"""Agents as typed, `NAME=FOLDER`, and what their folders hold; read without the networks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from models.config import CONFIG as CHECKPOINT
from pipeline.core.errors import UserError
from training.baselines.config import CONFIG as BASELINE

CLIPS = "[!.]*.mp4"


@dataclass(frozen=True)
class TypedAgent:
    """An agent as the user named it."""

    name: str
    folder: Path
    holds: Literal["checkpoint", "baseline", "clips"]

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse NAME=FOLDER, and look into the folder.

        Raises:
            UserError: the text has another form, or the folder holds nothing that plays or was played.
        """
        name, equals, source = text.partition("=")
        if not equals or not source:
            raise UserError(f"--agent {text}: give NAME=FOLDER, such as `--agent ours=run/adapt/result`")
        return cls(name, Path(source), _held_by(Path(source)))


def clips_of(folder: Path) -> list[Path]:
    """Return the clips of all games in a folder; hidden files, of macOS or of a killed program, are none."""
    return sorted(folder.glob(f"[!.]*/{CLIPS}"))


def _held_by(folder: Path) -> Literal["checkpoint", "baseline", "clips"]:
    if (folder / BASELINE).exists():
        return "baseline"
    if (folder / CHECKPOINT).exists():
        return "checkpoint"
    if clips_of(folder):
        return "clips"
    raise UserError(
        f"{folder}: neither a checkpoint ({CHECKPOINT}), nor a baseline ({BASELINE}), nor clips of games: it has no "
        "GAME/0001.mp4; a film of a whole game has to be cut into a clip per turn"
    )
