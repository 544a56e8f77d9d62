"""Saved states of a run: what it takes to go on to the bit after a kill, on disk whole or not at all.

    FOLDER/step-00001500/      torch's distributed checkpoint: weights in training, optimizer, averages, loss scale

Only what training changes is saved; the frozen bases are not. Order, noise and dropout follow from the step alone. A
state written by several processes can be read by another number of them.
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
    """Step of the newest whole state; None if there is none."""
    return max(_steps(folder), default=None)


def save(folder: Path, step: int, state: dict[str, Any], keep: int, accelerator: Accelerator) -> None:
    """Write a state and remove the oldest ones; called by all processes together.

    Args:
        folder: of the states, on a disk that all processes share.
        step: steps done.
        state: nested dictionaries of tensors and plain values; sharded tensors are written by their owners.
        keep: how many states stay.
        accelerator: of the run.
    """
    part = folder / f".{_folder_name(step)}"
    if accelerator.is_main_process:
        shutil.rmtree(part, ignore_errors=True)  # of a run that was killed while it wrote
        part.mkdir(parents=True)
    accelerator.wait_for_everyone()
    try:
        with _quietly():
            write_checkpoint(state, checkpoint_id=part)
    except CheckpointException as error:  # no Exception in torch, but a BaseException
        first = next(iter(error.failures.values()))[0]
        raise UserError(f"{part} cannot be written: {first}; make room, and the same command goes on") from error
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        part.rename(folder / _folder_name(step))
        for old in sorted(_steps(folder))[:-keep]:
            shutil.rmtree(folder / _folder_name(old))
    accelerator.wait_for_everyone()


def load(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Read a state in place: tensors are filled, plain values replaced; called by all processes together."""
    with _quietly():
        read_checkpoint(state, checkpoint_id=folder / _folder_name(step))


def _folder_name(step: int) -> str:
    return f"step-{step:08d}"


def _steps(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(match[1]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]


@contextmanager
def _quietly() -> Iterator[None]:
    """Torch remarks on every single-process save that there is no process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
