"""Writing files so that nothing is ever half-written under its final name, and folders so that one writes at a time.

Everything goes to a temporary name beside the final one, is synced, and renamed. A killed process leaves temporary
names behind, which `sweep` removes, and no lock: the system gives it back when its holder is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.core.errors import UserError, disk_errors

LOCK = ".lock"
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}(\.[^.]+)?")


class HeldError(UserError):
    """Someone else is at work in a folder; the message says who."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; on success it is synced and takes the name `path`.

    Raises:
        DiskError: it cannot be written, for lack of room or otherwise; what `path` held before stays.
    """
    temporary: Path | None = None
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=path.suffix, dir=path.parent)
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
    """Write `value` as indented JSON with sorted keys, atomically. NaN is refused."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def sweep(folder: Path, *, deep: bool = True, older_seconds: float = 0) -> None:
    """Remove what killed processes left under temporary names in a folder.

    Args:
        folder: call it holding the folder's lock.
        deep: in the folders in it too.
        older_seconds: only what has not been touched for so long, where others write who do not hold the lock.
    """
    youngest = time.time() - older_seconds
    for path in folder.rglob(".*") if deep else folder.glob(".*"):
        if _TEMPORARY.fullmatch(path.name) and path.is_file():
            with suppress(FileNotFoundError):  # whoever wrote it has just given it its name
                if path.stat().st_mtime <= youngest:
                    path.unlink()


@contextmanager
def held(folder: Path, doing: str) -> Iterator[None]:
    """Hold a folder, alone among all processes that ask for it, until the block ends or the process does.

    Args:
        folder: made if it is not there.
        doing: what for, told to who comes second.

    Raises:
        HeldError: another process, or another block of this one, holds it.
        DiskError: the folder cannot be made, or not be written in.
    """
    with ExitStack() as opened:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context((folder / LOCK).open("a+", encoding="utf-8"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise HeldError(
                f"{folder} is held by {file.read().strip() or 'another process'}; wait, or stop it"
            ) from None
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        with suppress(OSError):  # on a full disk the second is not told who, and is kept out all the same
            file.truncate(0)
            os.write(
                file.fileno(), f"`{doing}`, process {os.getpid()} on {socket.gethostname()}, since {since}\n".encode()
            )
        yield
