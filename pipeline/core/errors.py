"""Errors that a user can mend: the one base that commands and pages catch, and what a disk refuses.

It imports nothing of ours, so that every package may raise them. Any other exception is a bug and shows its traceback;
bad input inside a film is a `RecordError`, which costs that film and no other.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
}


class UserError(Exception):
    """An error that a user can mend; the message says what happened, where, and the remedy."""


class DiskError(UserError):
    """A file or folder that the disk refuses: no permission, a file in the way, a disk that only reads."""


class NoRoomError(DiskError):
    """A file cannot be written whole: the disk, the quota or the largest size of a file is reached."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Name `path` and the remedy where the disk refuses what the block does; any other OSError stays as it is.

    Raises:
        DiskError: there is no permission, or something is in the way.
        NoRoomError: there is no room.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            reason = os.strerror(error.errno)
            raise NoRoomError(
                f"{path}: cannot be written: {reason}; make room, and the same command goes on"
            ) from error
        if error.errno in _REFUSED:
            reason = os.strerror(error.errno)
            raise DiskError(f"{path}: cannot be used: {reason}; give access to it, or name another place") from error
        raise
