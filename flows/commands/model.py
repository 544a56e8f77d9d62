"""The commands that make, import and play models. Heavy imports wait inside them: help stays instant and torch-free."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.console.terminal import say
from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from models.config import ModelConfig


class Size(StrEnum):
    """Sizes of a new model."""

    tiny = "tiny"
    full = "full"


class Levels(StrEnum):
    """The published tables of motion level to motion scope."""

    decoder = "decoder"
    app = "app"


def need_networks() -> None:
    """End with the remedy where the data half alone is installed."""
    missing = [name for name in ("torch", "transformers", "diffusers", "peft") if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        raise UserError(f"the networks are not installed ({names}): `make install-train`, or the extra `train`")


def new_checkpoint(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write it; must not exist yet.")],
    size: Annotated[
        Size, typer.Option(help="`tiny` runs on any CPU, its frozen parts random; `full` is the published model.")
    ] = Size.tiny,
    base: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=WHERE",
            help="Take a frozen part from a folder or another hub id: language_model, transformer, autoencoder, "
            "text_encoder or image_encoder. May be repeated.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that starts random.")] = 0,
) -> None:
    """Write an untrained checkpoint, the starting point of training.

    `full` takes Mistral 7B Instruct v0.1 and CogVideoX 2B from the model hub (18 GB, once, into its cache); T5 XXL and
    CLIP are fetched when training first needs them.

        animegamer new-checkpoint start/ --size tiny
    """
    need_networks()
    from models.config import full_config, tiny_config
    from models.untrained import new_checkpoint as write

    config = with_bases(full_config() if size is Size.full else tiny_config(), base or [])
    checkpoint = write(folder, config, seed, say)
    typer.echo(checkpoint.folder)


def with_bases(config: ModelConfig, given: list[str]) -> ModelConfig:
    """The configuration with some frozen parts taken from elsewhere.

    Raises:
        UserError: something that is not NAME=WHERE, or not a name of a frozen part.
    """
    bases = {name: base.model_dump() for name, base in config.bases.items()}
    for text in given:
        name, equals, where = text.partition("=")
        if not equals or not where or name not in bases:
            raise UserError(f"--base {text}: give NAME=WHERE, with one of the names {', '.join(sorted(bases))}")
        folder = Path(where)
        bases[name] = {"id": str(folder.absolute()) if folder.is_dir() else where}
    return config.replaced(bases=bases)


def import_weights(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The downloaded release, or one model's files of it.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The checkpoint to write; must not exist yet.")],
    character: Annotated[
        str | None, typer.Option(help="Which of the released models, such as `Qiqi`, where SRC holds several.")
    ] = None,
    levels: Annotated[
        Levels, typer.Option(help="Which of the two published tables turns a motion level into a motion scope.")
    ] = Levels.decoder,
) -> None:
    """Convert the weights that the authors of AnimeGamer released into a checkpoint to play with.

    SRC holds `MLLM-*/pytorch_model.bin` and `VDM_Decoder-*/10000/mp_rank_00_model_states.pt`. Nothing in them is
    executed; every tensor is accounted for before anything is written. Mind their licence: the authors exclude use in
    the European Union.

        hf download TencentARC/AnimeGamer --local-dir released/

        animegamer import-weights released/ qiqi/ --character Qiqi
    """
    need_networks()
    from flows.console.progress import STOPPED, Bars
    from models.released.importer import import_weights as convert
    from pipeline.core.progress import watched

    table: Literal["decoder script", "app"] = "app" if levels is Levels.app else "decoder script"
    try:
        with Bars().watching(), watched(target.name, "import") as watch:
            imported = convert(source, target, table, character, watch)
    except KeyboardInterrupt:
        say(STOPPED, "yellow")
        raise typer.Exit(130) from None
    say(str(imported))
    typer.echo(target)


def play(
    checkpoint: Annotated[
        Path,
        typer.Option("--checkpoint", "-c", help="A folder that `new-checkpoint`, `import-weights` or training wrote."),
    ],
    game: Annotated[
        Path | None, typer.Option(help="A text file with one instruction a line; `#` starts a comment line.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where the shots and the log go.")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Open a page to play on, on this machine only.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page; 0 takes any that is free.")] = 8731,
    steps: Annotated[int, typer.Option(help="Denoising steps a turn, a divisor of 1000; fewer are faster.")] = 50,
    guidance: Annotated[
        float, typer.Option(min=1, max=20, help="How strongly a shot follows its tokens; 1 is twice as fast.")
    ] = 6.0,
    seed: Annotated[int, typer.Option(min=0, help="With --game: the same seed plays the same game.")] = 0,
    device: Annotated[str | None, typer.Option(help="`cpu`, `cuda`, `cuda:1`; unset: a GPU if there is one.")] = None,
    offload: Annotated[
        bool, typer.Option("--offload", help="For a small card: one network on it at a time, frames in tiles.")
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the shot decoder: a slow first turn, then faster ones.")
    ] = False,
) -> None:
    """Play the endless game: from a file of instructions, or on a page in the browser.

    An instruction is free text, or in the form of the training data:

        Character: Qiqi; Motion: slowly fly over the sea; Background: morning sky.

    With `--game`, every turn becomes a video in OUT beside `turns.jsonl`, and the whole game `film.mp4`. The same
    command again, after a stop or with more lines in the file, plays only what is missing.

        animegamer play --checkpoint ckpt/ --game game.txt --out game/

        animegamer play --checkpoint ckpt/ --serve
    """
    if serve == bool(game):
        raise UserError("give either --game FILE with --out FOLDER, or --serve")
    if game and not out:
        raise UserError("--game needs --out: the folder for the shots")
    need_networks()
    import torch

    how: dict[str, Any] = {"steps": steps, "guidance": guidance, "device": device}
    how |= {"offload": offload, "compile": compile}
    try:
        if game and out:
            _play_file(game, checkpoint, out, seed, how)
        else:
            from flows.web.server import serve as serve_page

            serve_page(checkpoint, out or Path("games"), port, **how)
    except torch.OutOfMemoryError as error:
        raise UserError("the card's memory is full: try --offload") from error
    except KeyboardInterrupt:
        from flows.console.progress import STOPPED

        say(STOPPED, "yellow")
        raise typer.Exit(130) from None


def _play_file(game: Path, checkpoint: Path, out: Path, seed: int, how: dict[str, Any]) -> None:
    from flows.console.progress import Bars
    from flows.game.play_file import play_file

    with Bars().watching():
        film = play_file(game, checkpoint, out, seed=seed, **how)
    typer.echo(film)
