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
from models.engine_options import EngineOptions, FrameDecoder, Precision, Sampler, Speed
from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from flows.web.rules import Rules

MODEL_ONLY = (
    "serve",
    "port",
    "open",
    "rules",
    "speed",
    "steps",
    "guidance",
    "sampler",
    "precision",
    "tiled",
    "compile",
    "frames",
)
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
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the shots and the log; with --serve, of all games [default: games/]."
        ),
    ] = None,
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
    speed: Annotated[
        Speed | None,
        typer.Option(
            help="`best`: the checkpoint's own sampling, in float32 on a CPU. `balanced`: at most 10 steps, with "
            "`ode`, half precision, compiled on a GPU. `fast`: at most 5 steps, with guidance in the middle ones "
            "only. The options below win. Unset: as `best`, in half precision."
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
        typer.Option(
            help="`sde` draws with fresh noise in every step, `ode` with noise at the start alone, `renoise` is for a "
            "distilled checkpoint."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="With --game: the same seed gives the same game.")] = 0,
    device: Annotated[str | None, typer.Option(help="`cpu`, `cuda` or `cuda:1`. [default: a GPU if available]")] = None,
    offload: Annotated[
        bool, typer.Option("--offload", help="For a small GPU: one network on it at a time, frames in tiles.")
    ] = False,
    tiled: Annotated[bool, typer.Option("--tiled", help="Decode frames in tiles: less GPU memory.")] = False,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="`half`: half precision on a GPU, and on a CPU with instructions for bfloat16. `int8`: also 8-bit "
            "weights of the game model, for a GPU of 24 GB (needs torchao). [default: half]"
        ),
    ] = None,
    compile: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Compile the networks: a slow first turn, then faster ones."),
    ] = None,
    frames: Annotated[
        FrameDecoder,
        typer.Option(
            help="`tiny` decodes the frames by taecvx of github.com/madebyollin/taehv, which is faster and a little "
            "worse. Put its file into the folder of the checkpoint."
        ),
    ] = "full",
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
    options = EngineOptions(device, steps, guidance, offload, compile, sampler, precision, tiled, speed, frames)
    need_networks()
    _check_paths(checkpoint, game, out, agent)
    played_by = _rules(rules or ("off" if checkpoint else "on")) if serve else None
    if not checkpoint:
        with importing():
            from models.shipped import shipped

        checkpoint = shipped().folder
    if not agent and (doubt := _doubt(checkpoint, options)):
        say(doubt, "yellow")
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


def _doubt(checkpoint: Path, options: EngineOptions) -> str | None:
    """Return why a checkpoint may draw badly with these options. UserError if it cannot draw with them."""
    from models.config import ModelConfig

    return options.doubt(ModelConfig.read(checkpoint))


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
