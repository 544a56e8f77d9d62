"""Messages of the commands on standard error: plain, whole lines, whatever a film is called."""

from __future__ import annotations

from rich.console import Console

console = Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print text as it is: no markup is read in it, no path is wrapped, no control character reaches the terminal."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def is_text(text: str) -> bool:
    """Return whether the text can be stored as UTF-8; a file name from a disk need not be."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def printable(text: str) -> str:
    """The text with control characters, which could move the cursor or recolour the terminal, made visible.

    The joiner inside emoji stays: it does neither.
    """
    kept = (char.isprintable() or char == "\N{ZERO WIDTH JOINER}" for char in text)
    return "".join(char if keep else "\N{REPLACEMENT CHARACTER}" for char, keep in zip(text, kept, strict=True))
