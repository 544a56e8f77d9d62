"""Folders that several tests of one process share, made when the first needs one and removed when the last is done.

folder = shared_folder("tiny-checkpoint")
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

_made: list[Path] = []


def shared_folder(name: str) -> Path:
    """A new folder, for whoever keeps it: call it from a cached function."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    _made.append(folder)
    return folder


def remove_shared_folders() -> None:
    """To be called at the end of the process's tests."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)
