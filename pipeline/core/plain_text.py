"""Text for messages: checks of untrusted text, such as file names, a form of it that is safe to print, and lists."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def is_text(text: str) -> bool:
    """Return True if the text can be stored as UTF-8; a file name from a disk may not be."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def is_line(text: str) -> bool:
    """Return True if the text is one line without control characters; spaces of all scripts and emoji are allowed."""
    return all(_is_shown(char) or unicodedata.category(char) == "Zs" for char in text)


def printable(text: str) -> str:
    """Replace control characters, which could move the cursor or recolour the terminal.

    The zero-width joiner inside emoji is kept: it does neither.
    """
    if text.isprintable():
        return text
    return "".join(char if _is_shown(char) else "\N{REPLACEMENT CHARACTER}" for char in text)


def _is_shown(char: str) -> bool:
    return char.isprintable() or char == "\N{ZERO WIDTH JOINER}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, as `1 clip` or `1,200 clips`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_few(names: Sequence[str], most: int) -> str:
    """Return the first `most` names as `a, b and 3 more`, safe to print; the others are counted."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return printable(", ".join(names[:most])) + more
