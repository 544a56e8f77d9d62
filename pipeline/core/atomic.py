"""Atomic file writes, synced appends and folder locks: no half-written file under a final name, one writer per folder.

Content goes to a temporary file in the same folder, is synced, and renamed into place. A killed process leaves
temporary files behind, which `sweep` removes, but no lock: the kernel releases it when the process ends. A file that is
only appended to may end in one torn line, which its readers skip.

A rename replaces a link. Files that are written in place (locks and logs) must not be links, because a folder from a
stranger could redirect the write to any file of the user.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, BinaryIO

from pipeline.core.errors import DiskError, UserError, disk_errors

LOCK = ".lock"
_MARK = ".animegamer-tmp-"
"""Part of every temporary name. No other program uses it, so the hidden files of users are safe."""
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}


class HeldError(UserError):
    """The folder is locked by another process; the message names the process."""


def temporary_start(path: Path) -> str:
    """Start of the names of temporary files for `path`, which `sweep` removes."""
    return f".{path.name[:40]}{_MARK}"


def is_temporary(path: Path) -> bool:
    """Return True if a file has the name of a temporary one."""
    return path.name.startswith(".") and _MARK in path.name


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path` to write to; on success it is synced and renamed to `path`.

    Raises:
        DiskError: the disk is full, or the file cannot be written; the old `path` stays.
    """
    temporary: Path | None = None
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=temporary_start(path), suffix=path.suffix, dir=path.parent)
            os.close(handle)
            temporary = Path(name)
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically. NaN raises ValueError."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def append_lines(path: Path, content: bytes) -> None:
    """Append whole lines to a file, new or existing; when it returns, they are on the disk.

    Two processes may append at once. A torn last line, left by a killed process, is ended first.

    Raises:
        DiskError: the disk is full, or the file cannot be written; its content is unchanged.
    """
    if not content:
        return
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_in_place(path), "rb+", buffering=0) as file:
            lock_file(file, fcntl.LOCK_EX, path.parent)
            size = file.seek(0, os.SEEK_END)
            try:
                is_torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
                _write(file, b"\n" + content if is_torn else content)
            except OSError:
                file.truncate(size)  # part of a line is of no use
                raise
        sync(path.parent)  # the name of a new file


def open_in_place(path: Path) -> int:
    """Open a file of ours to read and write it in place, created if missing; return its descriptor.

    Raises:
        DiskError: it is not a file, or it is a link or has a second name, so that another file would be written.
        OSError: it cannot be opened.
    """
    not_a_file = DiskError(f"{path}: is not a file; delete it, or name another folder")
    try:
        # O_NONBLOCK: a pipe or a device of that name must not stop us here
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.EISDIR:
            raise not_a_file from error
        if error.errno != errno.ELOOP:
            raise
        raise DiskError(f"{path}: is a link, and its target would be changed; delete the link") from error
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return handle
    os.close(handle)
    if not stat.S_ISREG(status.st_mode):
        raise not_a_file
    raise DiskError(f"{path}: has {status.st_nlink} names (hard links), and all of them would change; delete this one")


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path, *, deep: bool = True, older_seconds: float = 0) -> None:
    """Remove the temporary files that killed processes left in a folder, whose lock the caller holds.

    If processes may write without the lock, `older_seconds` keeps the files that were modified more recently.
    """
    youngest = time.time() - older_seconds
    for path in folder.rglob(".*") if deep else folder.glob(".*"):
        if is_temporary(path) and path.is_file():
            with suppress(FileNotFoundError):  # its writer has just renamed it into place
                if path.stat().st_mtime <= youngest:
                    path.unlink()


def held(folder: Path, purpose: str) -> AbstractContextManager[None]:
    """Lock a folder exclusively among processes until the block or the process ends.

    Args:
        folder: created if missing.
        purpose: description of the work, shown to a process that finds the lock taken.

    Raises:
        HeldError: another process, or another block of this one, holds the lock.
        DiskError: the folder cannot be created or written, or its file system has no locks.
    """
    return _locked(folder, purpose, fcntl.LOCK_EX)


@contextmanager
def read_locked(folder: Path, purpose: str) -> Iterator[None]:
    """Lock a folder for reading until the block ends: other readers may lock it too, but no process can hold it.

    A folder without write access is not locked.

    Raises:
        HeldError: another process holds the lock.
        DiskError: its file system has no locks.
    """
    if not os.access(folder, os.W_OK):
        yield
        return
    with _locked(folder, purpose, fcntl.LOCK_SH):
        yield


def lock_file(file: IO[Any], kind: int, folder: Path) -> None:
    """Lock an open file as `fcntl.flock` does, until it is closed; errors name `folder`.

    Raises:
        BlockingIOError: with LOCK_NB, another process holds the lock.
        DiskError: the file system has no locks, such as Lustre mounted without them.
    """
    try:
        fcntl.flock(file, kind)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise DiskError(
            f"{folder}: the file system has no file locks ({os.strerror(error.errno)}); turn them on "
            "(`flock` on Lustre, the lock service on NFS), or name another folder"
        ) from error


@contextmanager
def _locked(folder: Path, purpose: str, kind: int) -> Iterator[None]:
    with ExitStack() as opened:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context(os.fdopen(open_in_place(folder / LOCK), "r+", encoding="utf-8"))
        try:
            lock_file(file, kind | fcntl.LOCK_NB, folder)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise HeldError(f"{folder} is held by {holder}; wait, or stop it") from None
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        with suppress(OSError):  # on a full disk the lock still holds, only its description is missing
            file.truncate(0)
            holder = f"`{purpose}`, process {os.getpid()} on {socket.gethostname()}, since {since}\n"
            os.write(file.fileno(), holder.encode())
        yield


def _write(file: BinaryIO, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
    os.fsync(file.fileno())
