"""Parts of an instruction in the form of the training data: how it is told, and the place where it plays."""

from __future__ import annotations

import re

TIMES = ("daytime", "morning", "evening", "night")
"""Times of day that captions put before a place."""
_LINE = re.compile(
    r"(?:Character: (?P<characters>[^;]*); )?Motion: (?P<motion>[^;]*?)(?:; Background: (?P<background>[^;]*?))?\.?"
)
_TIME = re.compile(rf"(?:{'|'.join(TIMES)}) ")


def told(instruction: str) -> str:
    """Return an instruction as it is shown under the picture: `Mika · slowly walk · beach`."""
    found = _LINE.fullmatch(instruction.strip())
    return " · ".join(part.strip() for part in found.groups() if part) if found else instruction


def stays(before: str, instruction: str) -> bool:
    """Return whether an instruction names the place of the one before, at whatever time of day."""
    place = _place(instruction)
    return place is not None and place == _place(before)


def _place(instruction: str) -> str | None:
    found = _LINE.fullmatch(instruction.strip())
    place = _TIME.sub("", (found["background"] or "").strip().lower(), count=1) if found else ""
    return place or None
