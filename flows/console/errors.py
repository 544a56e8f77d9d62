"""Error reporting of a command: one line for a UserError and for lack of memory, the traceback for everything else."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from flows.console.terminal import say
from pipeline.core.errors import UserError, memory_fault


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
