"""Command `play`: a game from a file or on a page, by the model or a baseline. Heavy imports are inside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.model import AgentName, need_networks
from flows.commands.review import Port
from flows.console.progress import STOPPED, Bars, importing
from flows.console.terminal import say
from models.engine_options import EngineOptions, Sampler
from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from flows.web.rules import Rules

MODEL_ONLY = ("serve", "port", "open", "rules", "steps", "guidance", "sampler", "compile")
"""Options that a baseline does not have; its steps and guidance are in its `baseline.json`."""


def play(
    context: typer.Context,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            "-c",
            help="Folder written by `new-checkpoint`, `import-weights` or training; with --agent, a baseline's. Unset: "
            "the small drawn world that comes with the package.",
        ),
    ] = None,
    game: Annotated[
        Path | None, typer.Option(help="Text file with one instruction per line; `#` starts a comment line.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the shots and the log.")] = None,
    agent: Annotated[AgentName | None, typer.Option(help="Play a baseline instead of the model. Needs --game.")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve a page to play on, on this machine only.")] = False,
    port: Port = 8731,
    open: Annotated[bool, typer.Option("--open", help="With --serve: open the page in the browser.")] = False,
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="[on|off|FILE]",
            help="With --serve: rules of the game, or a TOML file with others. [default: on for the packaged model]",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Denoising steps per turn, a divisor of 1000; fewer are faster. Unset, as below: the checkpoint's."
        ),
    ] = None,
    guidance: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=20,
            help="Strength with which a shot follows its tokens; 1 is twice as fast.",
        ),
    ] = None,
    sampler: Annotated[
        Sampler | None,
        typer.Option(help="`sde` draws with fresh noise in every step, `ode` with noise at the start alone."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="With --game: the same seed gives the same game.")] = 0,
    device: Annotated[str | None, typer.Option(help="`cpu`, `cuda` or `cuda:1`. [default: a GPU if available]")] = None,
    offload: Annotated[
        bool, typer.Option("--offload", help="For a small GPU: one network on it at a time, frames in tiles.")
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the shot decoder: a slow first turn, then faster ones.")
    ] = False,
) -> None:
    """Play the endless game: from a file of instructions, or on a page in the browser.

    An instruction is free text, or has the form of the training data:

        Character: Mika; Motion: slowly walk; Background: beach.

    With `--game`, every turn is written to OUT as a video next to `turns.jsonl`, and the whole game as `film.mp4`. The
    same command after a stop, or with more lines in the file, plays only the missing turns (`--agent gsc` draws a whole
    story at once and cannot resume).

        animegamer play --serve --open

        animegamer play --checkpoint ckpt/ --game game.txt --out game/

        animegamer play --checkpoint ckpt/ --serve

        animegamer play --checkpoint run/gc/result --agent gc --game game.txt --out gc-game/
    """
    if agent:
        _refuse(context, MODEL_ONLY, f"goes with the model, not with --agent {agent}")
    if serve == bool(game):
        raise UserError("give either --game FILE with --out FOLDER, or --serve")
    if serve:
        _refuse(context, ("seed",), "goes with --game, not with --serve")  # each game of the page has another seed
    else:
        _refuse(context, ("port", "open", "rules"), "goes with --serve, not with --game")
    if game and not out:
        raise UserError("--game needs --out: the folder for the shots")
    if agent and not checkpoint:
        raise UserError("--agent needs --checkpoint: the folder of the baseline")
    need_networks()
    _check_paths(checkpoint, game, out, agent)
    played_by = _rules(rules or ("off" if checkpoint else "on")) if serve else None
    if not checkpoint:
        with importing():
            from models.shipped import shipped

        checkpoint = shipped().folder
    options = EngineOptions(device, steps, guidance, offload, compile, sampler)
    with stoppable():
        if game and out:
            with importing():
                from flows.game.play_baseline import play_baseline
                from flows.game.play_file import play_file

            with Bars().watching():
                if agent:
                    film = play_baseline(agent, game, checkpoint, out, seed=seed, device=device, offload=offload)
                else:
                    film = play_file(game, checkpoint, out, options, seed)
            typer.echo(film)
        else:
            with importing():
                from flows.web.play_app import serve as serve_page

            serve_page(checkpoint, out or Path("games"), port, options, rules=played_by, browse=open)


def _rules(choice: str) -> Rules | None:
    """Return the rules to play by: those of the package, none, or those of a file."""
    from flows.web.rules import SHIPPED, read_rules

    return None if choice == "off" else read_rules(SHIPPED if choice == "on" else Path(choice))


def _refuse(context: typer.Context, names: Sequence[str], reason: str) -> None:
    """Raise a UserError with the reason if one of these options was given."""
    for name in names:
        source = context.get_parameter_source(name)
        if source and source.name != "DEFAULT":
            raise UserError(f"--{name} {reason}")


def _check_paths(checkpoint: Path | None, game: Path | None, out: Path | None, agent: AgentName | None) -> None:
    """Raise a UserError for a path that cannot be used, before the networks' packages are imported."""
    from flows.game.game_file import check_folder, read_game_file
    from models.config import ModelConfig
    from training.baselines.config import BaselineConfig

    if checkpoint:
        (BaselineConfig if agent else ModelConfig).read(checkpoint)
    if game:
        read_game_file(game)
    if out:
        check_folder(out)


@contextmanager
def stoppable() -> Iterator[None]:
    """Report a full GPU memory with its remedy, and exit with code 130 on Ctrl-C."""
    with importing():
        import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError("the GPU's memory is full: try --offload") from error
    except KeyboardInterrupt:
        say(STOPPED, "yellow")
        raise typer.Exit(130) from None
