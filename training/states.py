"""Saved states of a phase: written beside training, complete or absent, and read by any number of processes.

    PHASE/states/.step-00001500/     being written; a killed run leaves it, and the next one removes it
    PHASE/states/step-00001500/      complete

A state is a checkpoint of torch distributed. It is first copied into main memory, which takes a second or two at full
size. A thread writes the copy while training goes on, syncs its files, and renames the folder. If the weights are
sharded, each process writes its part. The processes talk about it in a group of their own, because the group of
training is busy.
"""

from __future__ import annotations

import shutil
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from types import TracebackType
from typing import Any, Self

from accelerate import Accelerator
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict_loader import load as read_checkpoint
from torch.distributed.checkpoint.state_dict_saver import save as write_checkpoint

from pipeline.core.atomic import sync
from pipeline.core.errors import UserError
from training.phase_folder import folder_name, steps_in
from training.processes import writing_group


class StateWriter:
    """Writer of a phase's states. As a context it waits at the end for the last one, except after a KeyboardInterrupt.

    Args:
        folder: folder of the states, on a disk shared by all processes.
        keep: number of states to keep.
    """

    def __init__(self, folder: Path, keep: int, accelerator: Accelerator) -> None:
        self.folder, self.keep, self.accelerator = folder, keep, accelerator
        self._group = writing_group()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Begin to write a state; it may change as soon as this returns. Collective call.

        Args:
            state: nested dictionaries of tensors and plain values; sharded tensors are written by their owners.

        Raises:
            UserError: the state before could not be written.
        """
        self.wait()
        part = self.folder / f".{folder_name(step)}"
        if self.accelerator.is_main_process:
            for left in self.folder.glob(".step-*"):  # by a run that was killed or had no room
                shutil.rmtree(left, ignore_errors=True)
            part.mkdir(parents=True)
        self.accelerator.wait_for_everyone()
        _without_warning()
        copy = BlockingAsyncStager().stage(state)
        # a daemon, so that a second Ctrl-C ends the process at once
        self._thread = threading.Thread(target=self._write, args=(part, step, copy), daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Return whether the last state could not be written, as far as is known; `wait` raises the reason."""
        return self._error is not None

    def wait(self) -> None:
        """Wait until the last state is complete. Collective call.

        Raises:
            UserError: it could not be written.
        """
        if self._thread is None:
            return
        self._thread.join()
        error, self._thread, self._error = self._error, None, None
        if isinstance(error, CheckpointException | OSError):
            reason = error if isinstance(error, OSError) else next(iter(error.failures.values()))[0]
            raise UserError(
                f"a state in {self.folder} cannot be written ({reason}); free space and run the same command again"
            ) from error
        if error:
            raise error
        self.accelerator.wait_for_everyone()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.wait()
        elif self._thread and not issubclass(kind, KeyboardInterrupt):
            self._thread.join()

    def _write(self, part: Path, step: int, state: dict[str, Any]) -> None:
        try:
            write_checkpoint(state, checkpoint_id=part, process_group=self._group)  # syncs its files
            if self.accelerator.is_main_process:
                sync(part)
                part.rename(self.folder / folder_name(step))
                sync(self.folder)
                for old in sorted(steps_in(self.folder))[: -self.keep]:
                    shutil.rmtree(self.folder / folder_name(old))
        except BaseException as error:  # noqa: BLE001  # `wait` raises it
            self._error = error


def load_state(folder: Path, step: int, state: dict[str, Any], optional: Sequence[str] = ()) -> None:
    """Read a state in place: tensors are filled, plain values replaced. Collective call: all processes take part.

    Args:
        folder: folder of the states.
        state: nested dictionaries like the saved ones; other parts of the saved state are not read.
        optional: parts that are removed from `state` if the saved state lacks them.

    Raises:
        UserError: the state is damaged, or of a version with another optimizer.
    """
    path = folder / folder_name(step)
    if expected := state.keys() & set(optional):
        for name in expected - _parts(path):
            del state[name]
    _without_warning()
    try:
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
        f"{path} cannot be read: {reason}. It is damaged, or of another version: remove it to continue from the state "
        f"before, finish the phase with that version, or remove {path.parent} to train the phase again"
    )


def _without_warning() -> None:
    """Suppress torch's warning, at every state of a single process, that there is no process group.

    It stays suppressed, because the context of `warnings` is not for threads.
    """
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
