"""Error reporting of a command: one line for a UserError, the traceback for everything else."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from flows.console.terminal import say
from pipeline.core.errors import UserError


@contextmanager
def user_errors_reported(*, debug: bool = False) -> Iterator[None]:
    """Print a `UserError` as one line and exit with code 1; any other error is a bug and is not caught.

    Args:
        debug: print the traceback above that line.
    """
    try:
        yield
    except UserError as error:
        if debug:
            for line in "".join(traceback.format_exception(error)).splitlines():
                say(line)
        say(f"animegamer: {error}", "red")
        raise typer.Exit(1) from error
