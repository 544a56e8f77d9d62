"""Command line `animegamer`: it imports only the module of the command that runs, so help is fast without torch."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from flows.console.terminal import user_errors_reported

MODULES = {
    "build": "build",
    "config": "build",
    "deploy": "build",
    "status": "dataset",
    "verify": "dataset",
    "report": "dataset",
    "remove": "dataset",
    "review": "review",
    "cast": "review",
    "calibrate": "dataset",
    "vocabulary": "dataset",
    "audit": "audit",
    "clips": "clips",
    "export": "export",
    "caption-server": "captions",
    "captions": "captions",
    "new-checkpoint": "model",
    "import-weights": "model",
    "play": "play",
    "train": "train",
    "snapshot": "model",
    "recipe": "train",
    "benchmark": "benchmark",
    "evaluate": "evaluate",
}
"""Commands in the order of the help, each with the module of `flows.commands` that has a function of its name."""


class Commands(TyperGroup):
    """Command group. It loads a command when it is used, and alone reports a `UserError`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(MODULES, TyperCommand(None))  # names for the help and for "did you mean"

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the context class is private to typer
        """Import a command, or return None if there is none of this name."""
        if cmd_name not in MODULES:
            return None
        found = getattr(import_module(f"flows.commands.{MODULES[cmd_name]}"), cmd_name.replace("-", "_"))
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
            command.name = cmd_name
            return command
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        single.command(cmd_name)(found)
        return get_command(single)

    def invoke(self, ctx: Any) -> Any:
        """Run the sub-command."""
        with user_errors_reported(debug=ctx.params["debug"]):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Build datasets from anime films, train AnimeGamer on them, and play.",
)


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of every error, not of bugs alone.")
    ] = False,
) -> None:
    """Options common to all commands; `Commands` reads them."""


def main() -> None:
    """Entry point of the `animegamer` command."""
    app()


if __name__ == "__main__":
    main()
