"""Commands that make and import models. Heavy imports wait inside them: help stays instant and torch-free."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.console.terminal import say
from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from models.config import ModelConfig


class ModelSize(StrEnum):
    """Sizes of a new model."""

    tiny = "tiny"
    full = "full"


class AgentName(StrEnum):
    """Baselines that can play a game in the model's stead."""

    gc = "gc"
    gfc = "gfc"
    gsc = "gsc"


class LevelTable(StrEnum):
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
        ModelSize, typer.Option(help="`tiny` runs on any CPU, its frozen parts random; `full` is the published model.")
    ] = ModelSize.tiny,
    base: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=WHERE",
            help="Take a frozen part from a folder or another hub id: language_model, transformer, autoencoder, "
            "text_encoder or image_encoder. May be repeated.",
        ),
    ] = None,
    agent: Annotated[
        AgentName | None, typer.Option(help="Write this baseline instead of the model; `gsc` needs no training.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that starts random.")] = 0,
) -> None:
    """Write an untrained checkpoint, the starting point of training.

    `full` takes Mistral 7B Instruct v0.1 and CogVideoX 2B from the model hub (18 GB, once, into its cache); T5 XXL and
    CLIP are fetched when training first needs them.

        animegamer new-checkpoint start/ --size tiny
    """
    if agent and base:
        raise UserError(f"--base goes with the model, not with --agent {agent}; change the ids in `baseline.json`")
    need_networks()
    if agent:
        _write_baseline(folder, agent, size, seed)
    else:
        _write_checkpoint(folder, size, base or [], seed)
    typer.echo(folder)


def _write_checkpoint(folder: Path, size: ModelSize, base: list[str], seed: int) -> None:
    from models.config import full_config, tiny_config
    from models.untrained import new_checkpoint

    new_checkpoint(folder, with_bases(full_config() if size is ModelSize.full else tiny_config(), base), seed, say)


def _write_baseline(folder: Path, agent: AgentName, size: ModelSize, seed: int) -> None:
    from training.baselines.config import full, tiny
    from training.baselines.folder import new_baseline

    new_baseline(folder, full(agent.value) if size is ModelSize.full else tiny(agent.value), seed)


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
        LevelTable, typer.Option(help="Which of the two published tables turns a motion level into a motion scope.")
    ] = LevelTable.decoder,
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

    table: Literal["decoder script", "app"] = "app" if levels is LevelTable.app else "decoder script"
    try:
        with Bars().watching(), watched(target.name, "import") as watch:
            imported = convert(source, target, table, character, watch)
    except KeyboardInterrupt:
        say(STOPPED, "yellow")
        raise typer.Exit(130) from None
    say(str(imported))
    typer.echo(target)
