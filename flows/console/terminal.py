"""Messages of the commands on standard error: unwrapped lines without markup or control characters."""

from __future__ import annotations

from rich.console import Console

from pipeline.core.plain_text import printable

console = Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print text without interpreting markup, wrapping lines, or passing control characters to the terminal."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)
