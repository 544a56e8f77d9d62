"""Text from outside, such as file names: whether it can be stored, and a form that a terminal shows safely."""

from __future__ import annotations


def is_text(text: str) -> bool:
    """Tell whether the text can be stored as UTF-8; a file name from a disk need not be."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def printable(text: str) -> str:
    """Replace control characters, which could move the cursor or recolour the terminal.

    The joiner inside emoji stays: it does neither.
    """
    kept = (char.isprintable() or char == "\N{ZERO WIDTH JOINER}" for char in text)
    return "".join(char if keep else "\N{REPLACEMENT CHARACTER}" for char, keep in zip(text, kept, strict=True))
