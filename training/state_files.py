"""Files of a phase's saved states, for a bit-exact resume after a kill; written atomically.

A state is a checkpoint of torch distributed: trained weights, optimizer, averages, loss scale. Frozen bases are not
saved. Order, noise and dropout are functions of seed and step, so they need no state. A state can be read by a
different number of processes than wrote it.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from accelerate import Accelerator
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as read_checkpoint
from torch.distributed.checkpoint.state_dict_saver import save as write_checkpoint

from models.checkpoint_writer import link_or_copy, writing
from pipeline.core.errors import UserError
from training.run_states import SavedState, folder_name, steps_in


def link_into(phase: Path, state: SavedState) -> None:
    """Put a state into the folder of another phase. Its files are shared: they are never changed in place."""
    target = SavedState(phase, state.step).folder
    if not target.exists():
        with writing(target) as part:
            shutil.copytree(state.folder, part, copy_function=link_or_copy, dirs_exist_ok=True)


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
        for old in sorted(steps_in(folder))[:-keep]:
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


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress torch's warning, on every single-process save, that there is no process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
