"""Fork: a run that continues another run from a saved state, with other settings, in a separate folder.

RUN/fork.json                   the state, and the recipe that it was trained by
RUN/start/                      the starting checkpoint of the forked phase
RUN/PHASE/states/step-N/        the state

Checkpoint and state share their files with the other run if the disk allows it, and stay when that run removes them.
From there on, a fork is an ordinary run. It does not run the phases before the forked one, and its recipe is the other
run's, with the changes of the TOML file.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from models.checkpoint import Checkpoint
from models.checkpoint_writer import link_or_copy, writing
from pipeline.core.atomic import held, write_json
from pipeline.core.errors import UserError
from pipeline.core.ingredients import read_note
from pipeline.core.records import Record
from training.config import Recipe
from training.phase_folder import FORK_NOTE, PhaseNote, SavedState
from training.recipes import PHASES, PhaseName, changed_recipe, loop_of


def link_into(phase: Path, state: SavedState) -> None:
    """Put a state into the folder of another phase. Its files are shared: they are never changed in place."""
    target = SavedState(phase, state.step).folder
    if not target.exists():
        with writing(target) as part:
            shutil.copytree(state.folder, part, copy_function=link_or_copy, dirs_exist_ok=True)


class Fork(Record):
    """Origin of a forked run."""

    phase: PhaseName
    step: int
    state: str
    recipe: Recipe
    """Recipe that the state was trained by."""

    @classmethod
    def read(cls, run: Path) -> Self | None:
        """Return the fork of a run, or None if the run is not a fork. UserError if the note is damaged."""
        path = run / FORK_NOTE
        try:
            return cls.model_validate_json(path.read_bytes()) if path.exists() else None
        except ValidationError as error:
            raise UserError(f"{path} is damaged: fork again into a new folder") from error

    @classmethod
    def of(cls, source: Path, run: Path) -> Self:
        """Return the fork of a state, named by its folder or its phase's, into the folder of a run.

        This writes nothing. After `make` has written the fork, the other run is not read any more.

        Raises:
            UserError: the state does not exist, or it cannot be forked into this folder.
        """
        if made := cls.read(run):
            if source.absolute() not in (Path(made.state), Path(made.state).parents[1]):
                raise UserError(f"{run} was forked from {made.state}: name another --out for another state")
            return made
        state = SavedState.at(source.absolute())
        if state.phase.name not in PHASES:
            raise UserError(f"{state.phase} cannot be forked: take a state of {', '.join(PHASES)}")
        if any(run.glob("*/made_from.json")):
            raise UserError(f"{run} is a run already: name a new folder as --out to fork into")
        recipe = PhaseNote.read(state.phase).recipe
        return cls(phase=state.phase.name, step=state.step, state=str(state.folder), recipe=recipe)

    def make(self, run: Path) -> None:
        """Put starting checkpoint, state and note into the folder of the run, unless they are there.

        Raises:
            UserError: the starting checkpoint is not there any more, or has changed.
        """
        with held(run, "animegamer train"):
            if (run / FORK_NOTE).exists():
                return
            state = SavedState.at(Path(self.state))
            start = Checkpoint.open(PhaseNote.read(state.phase).started_from(state.phase))
            now = start.as_start()
            noted = read_note(state.phase / "made_from.json") or {}
            if any(noted.get(name) != value for name, value in now.items()):
                raise UserError(f"{start.folder} has changed since {state.phase} was begun from it: nothing to fork")
            if not (run / "start").exists():
                with writing(run / "start") as part:
                    shutil.copytree(start.folder, part, copy_function=link_or_copy, dirs_exist_ok=True)
            elif Checkpoint.open(run / "start").as_start() != now:
                raise UserError(f"{run / 'start'} is another checkpoint: name a new folder as --out to fork into")
            link_into(run / self.phase, state)
            write_json(run / FORK_NOTE, self.model_dump(mode="json"))

    def changed(self, config: Path | None) -> Recipe:
        """Return the state's recipe with the changes of a TOML file.

        Raises:
            UserError: the file has invalid keys, or changes that do not go with the state.
        """
        recipe = changed_recipe(self.recipe, config) if config else self.recipe
        steps = loop_of(recipe, self.phase).steps
        if steps <= self.step:
            raise UserError(f"{self.state} has done {self.step} steps: give {self.phase} more than these, not {steps}")
        if fixed := [name for name, is_other in self._fixed(recipe).items() if is_other]:
            raise UserError(
                f"{self.state} belongs to its network: do not change {' and '.join(fixed)}, or train from a checkpoint "
                "with --from"
            )
        return recipe

    def origin_of(self, phase: str) -> str | None:
        """Return the state that a phase continues, as RUN/PHASE/states/step-N; None for other phases."""
        return "/".join(Path(self.state).parts[-4:]) if phase == self.phase else None

    def precedes(self, phase: str) -> bool:
        """Return whether a phase was run before the fork, by the other run."""
        return phase in PHASES and PHASES.index(phase) < PHASES.index(self.phase)

    def _fixed(self, recipe: Recipe) -> dict[str, bool]:
        """Return for each key that determines the trained parameters whether it is changed."""
        before = self.recipe
        optimizers = [loop_of(each, self.phase).optimizer for each in (before, recipe)]
        keys = {"model": recipe.model != before.model, "optimizer": optimizers[0] != optimizers[1]}
        if self.phase == "joint":
            keys["shot.trained"] = recipe.shot.trained != before.shot.trained
        if self.phase == "distill":
            keys["distill.critic_rank"] = recipe.distill.critic_rank != before.distill.critic_rank
            keys["distill.adversarial"] = bool(recipe.distill.adversarial) != bool(before.distill.adversarial)
        return keys
