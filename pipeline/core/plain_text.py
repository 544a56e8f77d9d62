"""Checks of untrusted text, such as file names: valid UTF-8, and a form that is safe to print on a terminal."""

from __future__ import annotations


def is_text(text: str) -> bool:
    """Return True if the text can be stored as UTF-8; a file name from a disk may not be."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def printable(text: str) -> str:
    """Replace control characters, which could move the cursor or recolour the terminal.

    The zero-width joiner inside emoji is kept: it does neither.
    """
    if text.isprintable():
        return text
    kept = (char.isprintable() or char == "\N{ZERO WIDTH JOINER}" for char in text)
    return "".join(char if keep else "\N{REPLACEMENT CHARACTER}" for char, keep in zip(text, kept, strict=True))
