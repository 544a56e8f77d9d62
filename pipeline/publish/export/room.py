"""Room on the disk of an export, checked before anything is written.

Sizes of clips cut anew are estimated from those of the data set. At equal quality bytes grow more slowly than pixels:
by a rule of thumb, with their power of 0.75.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from pipeline.core.errors import NoRoomError
from pipeline.core.records import Clip
from pipeline.core.store import ClipFormat
from pipeline.publish.export.placing import can_link, is_placed


def check_room_for_copies(out: Path, files: Iterable[tuple[Path, str]]) -> None:
    """Refuse an export whose copies have no room.

    Args:
        out: the export.
        files: of the data set, and their paths in the export.

    Raises:
        NoRoomError: the disk has too little.
    """
    copied = sum(
        source.stat().st_size
        for source, file in files
        if not can_link(out, source) and not is_placed(source, out / file)
    )
    if copied > (free := _free(out)):
        raise NoRoomError(
            f"{out}: on another disk than the data set, so that {_size(copied)} are copied, and "
            f"{_size(free)} are free; make room, or export to the disk of the data set"
        )


def check_room_for_cuts(out: Path, clips: Iterable[tuple[Clip, str]], cut: ClipFormat, fetched: int) -> None:
    """Refuse an export whose clips, cut anew, have no room.

    Args:
        out: the export.
        clips: of the data set, and their paths in the export.
        cut: format of the clips to cut.
        fetched: bytes of the largest film that is fetched for it.

    Raises:
        NoRoomError: the disk has too little, by the estimate.
    """
    missing = [clip for clip, file in clips if not (out / file).exists()]
    pixels = cut.width * cut.height * cut.frames
    growths = ((pixels / (clip.width * clip.height * clip.frames)) ** 0.75 for clip in missing)
    needed = round(sum(clip.bytes * growth for clip, growth in zip(missing, growths, strict=True)))
    needed += fetched if missing else 0
    if needed > (free := _free(out)):
        raise NoRoomError(
            f"{out}: {len(missing)} clips cut anew take about {_size(needed)}, and {_size(free)} are free; "
            "make room, or choose fewer clips"
        )


def _free(out: Path) -> int:
    existing = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
