"""Saved states of a run, for a bit-exact resume after a kill; written atomically.

    FOLDER/step-00001500/      torch distributed checkpoint: trained weights, optimizer, averages, loss scale

Frozen bases are not saved. Order, noise and dropout are functions of seed and step, so they need no state. A state can
be read by a different number of processes than wrote it.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as read_checkpoint
from torch.distributed.checkpoint.state_dict_saver import save as write_checkpoint

from pipeline.core.errors import UserError

_NAME = re.compile(r"step-(\d{8})")


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
    part = folder / f".{_folder_name(step)}"
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
        part.rename(folder / _folder_name(step))
        for old in sorted(_steps(folder))[:-keep]:
            shutil.rmtree(folder / _folder_name(old))
    accelerator.wait_for_everyone()


def load(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Read a state in place: tensors are filled, plain values replaced. Collective call: all processes take part.

    Raises:
        UserError: the state is damaged, or of a version with another optimizer.
    """
    path = folder / _folder_name(step)
    try:
        with _quietly():
            read_checkpoint(state, checkpoint_id=path)
    except CheckpointException as error:
        first = next(iter(error.failures.values()))[0]
        raise UserError(
            f"{path} cannot be read: {first}. It is damaged, or of another version: finish the phase with that "
            f"version, or remove {folder} to train the phase again"
        ) from error


def _folder_name(step: int) -> str:
    return f"step-{step:08d}"


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
