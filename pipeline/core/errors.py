"""User errors: the one base class that commands and pages catch, and disk errors with a remedy.

This module imports nothing from the project, so that every package can raise them. Any other exception is a bug and
shows its traceback; bad input inside a film is a `RecordError`, which fails that film only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_SHOWN = 5
_MEMORY_SIGNS = ("can't allocate memory", "Cannot allocate memory", "Insufficient memory", "can't start new thread")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
}


class UserError(Exception):
    """An error that the user can fix; the message says what happened, where, and the remedy."""


class DiskError(UserError):
    """A file or folder cannot be used: no permission, a file in the way, a read-only disk."""


class NoRoomError(DiskError):
    """A file cannot be written completely: the disk, the quota or the file size limit is full."""


def shortened(faults: Sequence[str]) -> str:
    """Join the first few faults into one line, and count the others."""
    more = f" and {len(faults) - _SHOWN:,} more" if len(faults) > _SHOWN else ""
    return "; ".join(faults[:_SHOWN]) + more


def memory_fault(error: Exception) -> str:
    """Return a line with a remedy if main memory ran out, else an empty text.

    The message decides, because torch, OpenCV and threads raise no MemoryError.
    """
    text = " ".join(str(error).split())[:200]
    if not isinstance(error, MemoryError) and not any(sign in text for sign in _MEMORY_SIGNS):
        return ""
    return f"memory ran out ({text or type(error).__name__}); close other programs, or take a machine with more memory"


def refuse_special_files(folder: Path) -> None:
    """Raise a UserError if a folder holds a device, pipe or socket, or a link to one: reading it may never end."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            if path.exists() and not path.is_file() and not path.is_dir():
                raise UserError(f"{path}: a device or a pipe, not a file; copy the folder again from where you trust")


def read_limited(path: Path, most_bytes: int) -> bytes:
    """Read a file that may be of any kind, such as a device without an end.

    Raises:
        OSError: it cannot be read.
        UserError: it is larger than `most_bytes`.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UserError(f"{path}: larger than {most_bytes / 1e6:g} MB, so it is not read; is it the right file?")
    return content


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert disk errors of the block into errors that name `path` and the remedy; any other OSError is re-raised.

    Raises:
        DiskError: permission is missing, or another file is in the way.
        NoRoomError: the disk is full.
    """
    try:
        yield
    except OSError as error:
        reason = error.errno and os.strerror(error.errno)
        if error.errno in _NO_ROOM:
            remedy = "make room, then run the same command again"
            raise NoRoomError(f"{path}: cannot be written: {reason}; {remedy}") from error
        if error.errno in _REFUSED:
            raise DiskError(f"{path}: cannot be used: {reason}; give access to it, or name another path") from error
        raise
