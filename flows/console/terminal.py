"""Messages of the commands on standard error: unwrapped lines without markup or control characters."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from pipeline.core.errors import UserError, memory_fault
from pipeline.core.plain_text import printable

console = Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print text without interpreting markup, wrapping lines, or passing control characters to the terminal."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def user_errors_reported(*, debug: bool = False) -> Iterator[None]:
    """Print a `UserError`, or that memory ran out, as one line and exit with code 1; other errors are bugs and pass.

    Args:
        debug: print the traceback above that line.
    """
    try:
        yield
    except Exception as error:
        line = str(error) if isinstance(error, UserError) else memory_fault(error)
        if not line:
            raise
        if debug:
            for each in "".join(traceback.format_exception(error)).splitlines():
                say(each)
        say(f"animegamer: {line}", "red")
        raise typer.Exit(1) from error
