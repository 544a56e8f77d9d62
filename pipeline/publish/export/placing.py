"""Clip files placed in an export: hard links to those of the data set where the disk allows, copies elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from pipeline.core.atomic import replacing, temporary_start
from pipeline.core.errors import disk_errors

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES}


def place(source: Path, path: Path) -> bool:
    """Place a file in the export; return False if it is there already.

    Raises:
        DiskError: it cannot be written.
    """
    if is_placed(source, path):
        return False
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _link(source, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _copy(source, path)
    return True


def is_placed(source: Path, path: Path) -> bool:
    """Return True if `path` is the same file, or a copy with its size and time."""
    if not path.exists():
        return False
    ours, theirs = path.stat(), source.stat()
    return os.path.samestat(ours, theirs) or (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)


def can_link(folder: Path, source: Path) -> bool:
    """Return True if the folder, or the nearest one above it that exists, is on the disk of the file."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    return there.stat().st_dev == source.stat().st_dev


def _link(source: Path, path: Path) -> None:
    temporary = path.with_name(f"{temporary_start(path)}linked{path.suffix}")
    temporary.unlink(missing_ok=True)
    os.link(source, temporary)
    temporary.replace(path)
    temporary.unlink(missing_ok=True)  # renaming one link over another of the same file does nothing


def _copy(source: Path, path: Path) -> None:
    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
        status = source.stat()
        os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
