"""Saved states of a phase, for a bit-exact resume after a kill; written atomically.

    PHASE/states/step-00001500/      torch distributed checkpoint: trained weights, optimizer, averages, loss scale

Frozen bases are not saved. Order, noise and dropout are functions of seed and step, so they need no state. A state can
be read by a different number of processes than wrote it.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Self

from accelerate import Accelerator
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as read_checkpoint
from torch.distributed.checkpoint.state_dict_saver import save as write_checkpoint

from models.checkpoint_writer import link_or_copy, writing
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
        if step not in _steps(phase / STATES):
            raise no_state([phase], step)
        return cls(phase, step)

    @property
    def folder(self) -> Path:
        """Folder of the state."""
        return self.phase / STATES / folder_name(self.step)

    def link_into(self, phase: Path) -> None:
        """Put this state into the folder of another phase. Its files are shared: they are never changed in place."""
        target = phase / STATES / folder_name(self.step)
        if not target.exists():
            with writing(target) as part:
                shutil.copytree(self.folder, part, copy_function=link_or_copy, dirs_exist_ok=True)


def no_state(phases: Sequence[Path], step: int) -> UserError:
    """Return the error that none of the phases has the state of a step; it names those that exist."""
    found = [f"{phase} has {', '.join(map(str, sorted(_steps(phase / STATES)))) or 'none'}" for phase in phases]
    return UserError(
        f"no saved state of step {step}: {'; '.join(found)}. Only the newest are kept (`keep` in the recipe); "
        "`snapshot_every` writes checkpoints that stay"
    )


def newest(folder: Path) -> int | None:
    """Return the step of the newest complete state; None if there is none."""
    return max(_steps(folder), default=None)


def save(folder: Path, step: int, state: dict[str, Any], keep: int, accelerator: Accelerator) -> None:
    """Write a state and remove the oldest ones. Collective call: all processes take part.

    Args:
        folder: folder of the states, on a disk shared by all processes.
        step: number of steps done.
        state: nested dictionaries of tensors and plain values; sharded tensors are written by their owners.
        keep: number of states to keep.
        accelerator: accelerator of the run.
    """
    part = folder / f".{folder_name(step)}"
    if accelerator.is_main_process:
        shutil.rmtree(part, ignore_errors=True)  # left by a run killed while writing
        part.mkdir(parents=True)
    accelerator.wait_for_everyone()
    try:
        with _quietly():
            write_checkpoint(state, checkpoint_id=part)
    except CheckpointException as error:  # a BaseException in torch, not an Exception
        first = next(iter(error.failures.values()))[0]
        raise UserError(f"{part} cannot be written: {first}; free disk space and run the same command again") from error
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        part.rename(folder / folder_name(step))
        for old in sorted(_steps(folder))[:-keep]:
            shutil.rmtree(folder / folder_name(old))
    accelerator.wait_for_everyone()


def load(folder: Path, step: int, state: dict[str, Any], optional: Sequence[str] = ()) -> None:
    """Read a state in place: tensors are filled, plain values replaced. Collective call: all processes take part.

    Args:
        folder: folder of the states.
        step: number of steps done.
        state: nested dictionaries like the saved ones; parts that the saved state has besides are not read.
        optional: parts of `state` that are removed if the saved state lacks them.

    Raises:
        UserError: the state is damaged, or of a version with another optimizer.
    """
    path = folder / folder_name(step)
    if expected := state.keys() & set(optional):
        for name in expected - _parts(path):
            del state[name]
    try:
        with _quietly():
            read_checkpoint(state, checkpoint_id=path)
    except CheckpointException as error:
        first = next(iter(error.failures.values()))[0]
        raise _unreadable(path, first) from error


def folder_name(step: int) -> str:
    """Return the name of the folder of a step: of its state, its pictures, its snapshot."""
    return f"step-{step:08d}"


def _parts(path: Path) -> set[str]:
    """Return the names of the parts that a saved state has."""
    try:
        keys = FileSystemReader(path).read_metadata().state_dict_metadata
    except (OSError, EOFError, UnpicklingError) as error:
        raise _unreadable(path, error) from error
    return {key.partition(".")[0] for key in keys}


def _unreadable(path: Path, reason: BaseException) -> UserError:
    return UserError(
        f"{path} cannot be read: {reason}. It is damaged, or of another version: finish the phase with that version, "
        f"or remove {path.parent} to train the phase again"
    )


def _steps(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(match[1]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress torch's warning, on every single-process save, that there is no process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
