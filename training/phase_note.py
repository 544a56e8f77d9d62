"""Note of a phase under way (`PHASE/begun.json`): its recipe, its start, and the configuration of its result.

From it and a saved state, another process can build the phase again without the data: `animegamer snapshot` and
`animegamer train --fork-from` do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import ValidationError

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError
from pipeline.core.records import Record
from training.config import Recipe

_NOTE = "begun.json"


class PhaseNote(Record):
    """A phase under way."""

    recipe: Recipe
    """Complete recipe of the run."""
    config: ModelConfig
    """Configuration of the result."""
    start: str
    """Folder of the starting checkpoint: relative to the run's, or absolute if it is not inside."""

    @classmethod
    def of(cls, run: Path, recipe: Recipe, config: ModelConfig, start: Path) -> Self:
        """Return the note of a phase that starts from the checkpoint in the folder `start`."""
        inside = start.absolute().is_relative_to(run.absolute())
        place = start.absolute().relative_to(run.absolute()) if inside else start.absolute()
        return cls(recipe=recipe, config=config, start=str(place))

    @classmethod
    def read(cls, phase: Path) -> Self:
        """Read the note in a phase's folder.

        Raises:
            UserError: there is none, or it is not valid.
        """
        path = phase / _NOTE
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise UserError(
                f"{path} cannot be read: is {phase} a phase of a run? One begun by an earlier version is resumed once "
                "with this one, which writes the file"
            ) from error

    def write(self, phase: Path) -> None:
        """Write the note into the phase's folder."""
        with replacing(phase / _NOTE) as temporary:
            temporary.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    def started_from(self, phase: Path) -> Checkpoint:
        """Open the starting checkpoint of the phase in this folder.

        Raises:
            UserError: it is not there any more.
        """
        return Checkpoint.open(phase.parent / self.start)
