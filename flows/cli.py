"""Command line `animegamer`. Sub-commands import what they need when they run, so help is fast and needs no torch."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flows.commands.audit import audit
from flows.commands.benchmark import benchmark
from flows.commands.build import build, config, deploy
from flows.commands.captions import caption_server, captions
from flows.commands.clips import clips
from flows.commands.dataset import calibrate, remove, report, status, verify, vocabulary
from flows.commands.evaluate import evaluate
from flows.commands.export import export
from flows.commands.model import import_weights, new_checkpoint, snapshot
from flows.commands.play import play
from flows.commands.review import review
from flows.commands.train import recipe, train
from flows.console.errors import user_errors_reported


class Commands(TyperGroup):
    """Command group; a `UserError` of any sub-command is reported here and nowhere else."""

    def invoke(self, ctx: Any) -> Any:  # the context class belongs to typer's private copy of click
        """Run the sub-command."""
        with user_errors_reported(debug=ctx.params["debug"]):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Anime films to WebDataset shards, and the AnimeGamer model to play on: an endless game of animation shots.",
)


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of every error, not of bugs alone.")
    ] = False,
) -> None:
    """Options common to all commands; `Commands` reads them."""


for command in (
    build,
    config,
    deploy,
    status,
    verify,
    report,
    remove,
    review,
    calibrate,
    vocabulary,
    audit,
    clips,
    export,
    caption_server,
    captions,
    new_checkpoint,
    import_weights,
    play,
    train,
    snapshot,
    recipe,
):
    app.command()(command)
app.add_typer(benchmark, name="benchmark")
app.add_typer(evaluate, name="evaluate")


def main() -> None:
    """Entry point of the `animegamer` command."""
    app()


if __name__ == "__main__":
    main()
