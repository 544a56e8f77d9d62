"""Saved states of a phase, by their folders; written and read by `state_files.py`.

    PHASE/states/step-00001500/      state after so many steps

Imports no torch, so that a mistyped state is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pipeline.core.errors import UserError

STATES = "states"
_NAME = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class SavedState:
    """A saved state of a phase.

    Attributes:
        phase: folder of the phase.
        step: number of steps done.
    """

    phase: Path
    step: int

    @classmethod
    def at(cls, path: Path) -> Self:
        """Return the state in a folder `PHASE/states/step-N`; of a phase folder, its newest one.

        Raises:
            UserError: there is no such state; the message names those that exist.
        """
        match = _NAME.fullmatch(path.name)
        phase = path.parent.parent if match else path
        step = int(match[1]) if match else newest(phase / STATES)
        if step is None:
            raise UserError(f"{path} has no saved states: name the folder of a phase, or one of its {STATES}/step-N")
        return cls.of(phase, step)

    @classmethod
    def of(cls, phase: Path, step: int) -> Self:
        """Return the state of a step; errors as in `at`."""
        if step not in steps_in(phase / STATES):
            raise no_state([phase], step)
        return cls(phase, step)

    @property
    def folder(self) -> Path:
        """Folder of the state."""
        return self.phase / STATES / folder_name(self.step)


def no_state(phases: Sequence[Path], step: int) -> UserError:
    """Return the error that none of the phases has the state of a step; it names those that exist."""
    found = [f"{phase} has {', '.join(map(str, sorted(steps_in(phase / STATES)))) or 'none'}" for phase in phases]
    return UserError(
        f"no saved state of step {step}: {'; '.join(found)}. Only the newest are kept (`keep` in the recipe); "
        "`snapshot_every` writes checkpoints that stay"
    )


def newest(folder: Path) -> int | None:
    """Return the step of the newest complete state; None if there is none."""
    return max(steps_in(folder), default=None)


def folder_name(step: int) -> str:
    """Return the name of the folder of a step: of its state, its pictures, its snapshot."""
    return f"step-{step:08d}"


def steps_in(folder: Path) -> list[int]:
    """Return the steps of the complete states in a folder."""
    if not folder.is_dir():
        return []
    return [int(match[1]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
