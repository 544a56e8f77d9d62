"""Messages of the commands, on standard error: plain, whole lines, whatever a film is called."""

from __future__ import annotations

from rich.console import Console

from pipeline.core.plain_text import printable

console = Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print text as it is: no markup is read in it, no path is wrapped, no control character reaches the terminal."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)
