"""Place of a game folder, `--out`; checked without the networks."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.errors import UserError


def check_place(path: Path) -> None:
    """Raise a UserError if the path is a file."""
    if path.is_file():
        raise UserError(f"{path}: is a file; name another --out")
