"""Folder of a training phase: its notes and its saved states.

    PHASE/made_from.json             ingredients: resuming with different ones is an error
    PHASE/begun.json                 recipe, start, and configuration of the result
    PHASE/states/step-00001500/      state after so many steps, see `states.py`

From `begun.json` and a saved state, another process can build the phase again without the data: `animegamer snapshot`
and `animegamer train --fork-from` do. This module imports no torch, so a mistyped state is an error at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from models.config import ModelConfig
from pipeline.core.atomic import replacing, write_json
from pipeline.core.errors import UserError
from pipeline.core.ingredients import Ingredients, changed, read_note
from pipeline.core.records import Record
from training.config import Recipe

STATES = "states"
FORK_NOTE = "fork.json"
"""Note in the folder of a run that continues a saved state of another run; see `forks.py`."""
_STEP = re.compile(r"step-(\d{8})")
MADE_FROM = "made_from.json"
_BEGUN = "begun.json"


def check_made_from(
    folder: Path, ingredients: Ingredients, compared: Callable[[Ingredients], Ingredients] = lambda same: same
) -> None:
    """Compare the ingredients with those noted in the folder, if there is a note.

    Args:
        compared: function that leaves out ingredients which may change in the same folder.

    Raises:
        UserError: the ingredients differ, or the note is damaged.
    """
    try:
        before = read_note(folder / MADE_FROM)
    except ValidationError as error:
        raise UserError(f"{folder / MADE_FROM} is damaged: remove {folder} to train it again") from error
    if before is None:
        return
    if names := changed(compared(before), compared(ingredients)):
        raise UserError(
            f"{folder} was begun with another {' and another '.join(names)}: name another --out, or remove that "
            "folder to train it again"
        )


def note_made_from(folder: Path, ingredients: Ingredients) -> None:
    """Write the ingredients into the folder, unless they are noted already."""
    if read_note(folder / MADE_FROM) != ingredients:
        write_json(folder / MADE_FROM, ingredients)


class PhaseNote(Record):
    """Note of a phase in progress."""

    recipe: Recipe
    config: ModelConfig
    """Configuration of the result."""
    start: str
    """Folder of the starting checkpoint, relative to the run's folder if it is inside, otherwise absolute."""

    @classmethod
    def of(cls, run: Path, recipe: Recipe, config: ModelConfig, start: Path) -> Self:
        """Return the note of a phase that starts from the checkpoint in the folder `start`."""
        inside = start.absolute().is_relative_to(run.absolute())
        folder = start.absolute().relative_to(run.absolute()) if inside else start.absolute()
        return cls(recipe=recipe, config=config, start=str(folder))

    @classmethod
    def read(cls, phase: Path) -> Self:
        """Read the note in a phase's folder. UserError if there is none, or it is not valid."""
        path = phase / _BEGUN
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise UserError(f"{path} cannot be read: is {phase} a phase of a run that has begun?") from error

    def write(self, phase: Path) -> None:
        """Write the note into the phase's folder."""
        with replacing(phase / _BEGUN) as temporary:
            temporary.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    def started_from(self, phase: Path) -> Path:
        """Return the folder of the starting checkpoint of the phase in this folder."""
        return phase.parent / self.start


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
        """Return the state in a folder `PHASE/states/step-N`, or the newest state of a phase folder.

        Raises:
            UserError: there is no such state; the message lists the existing states.
        """
        match = _STEP.fullmatch(path.name)
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
    """Return the error that none of the phases has the state of a step, with a list of the existing states."""
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
    return [int(match[1]) for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))]
