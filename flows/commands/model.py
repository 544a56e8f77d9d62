"""Commands `new-checkpoint`, `import-weights`, `snapshot`. Heavy imports are inside them, so help needs no torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.console.progress import importing
from flows.console.terminal import say
from pipeline.core.errors import UserError, disk_errors

if TYPE_CHECKING:
    from models.config import ModelConfig

AgentName = Literal["gc", "gfc", "gsc"]
"""Baselines that can play a game instead of the model."""
ModelSize = Literal["tiny", "mini", "full"]


def need_networks() -> None:
    """Raise a UserError with the remedy if the packages of the networks are missing."""
    missing = [name for name in ("torch", "transformers", "diffusers", "peft") if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        raise UserError(f"the networks are not installed ({names}): `make install-train`, or the extra `train`")


def new_checkpoint(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Checkpoint to write; must not exist yet.")],
    size: Annotated[
        ModelSize,
        typer.Option(
            help="Choose `tiny` for any CPU (frozen parts are random), `mini` to train all parts on two cores, or "
            "`full`, the published model."
        ),
    ] = "tiny",
    base: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            help="Take a frozen part from a folder or another hub id: language_model, transformer, autoencoder, "
            "text_encoder or image_encoder. May be repeated.",
        ),
    ] = None,
    agent: Annotated[
        AgentName | None,
        typer.Option(help="Write this baseline instead of the model; `gsc` with `--size full` needs no training."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is initialised at random.")] = 0,
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
    from models.config import CONFIGS

    config = with_bases(CONFIGS[size](), base)
    with importing():
        from models.untrained import new_checkpoint

    new_checkpoint(folder, config, seed, say)


def _write_baseline(folder: Path, agent: AgentName, size: ModelSize, seed: int) -> None:
    if size == "mini":
        raise UserError(
            "the size mini has only the baseline GC, made from a checkpoint: train gc --recipe mini --from CHECKPOINT"
        )
    with importing():
        from training.baselines.config import full, tiny
        from training.baselines.folder import new_baseline

    new_baseline(folder, full(agent) if size == "full" else tiny(agent), seed)


def with_bases(config: ModelConfig, assignments: list[str]) -> ModelConfig:
    """Return the configuration with other sources for some frozen parts.

    Raises:
        UserError: an assignment is not NAME=SOURCE, or does not name a frozen part of a model of this size.
    """
    from models.config import Base

    bases: dict[str, Base] = dict(config.bases.items())
    for text in assignments:
        name, equals, source = text.partition("=")
        if not equals or not source or name not in bases:
            raise UserError(f"--base {text}: give NAME=SOURCE, with one of the names {', '.join(sorted(bases))}")
        if name in config.whole:
            raise UserError(
                f"--base {text}: size {config.size} trains {name} from scratch; omit --base, or choose another --size"
            )
        bases[name] = Base.of_folder(name, Path(source)) if Path(source).is_dir() else Base(id=source)
    return config.replaced(bases=bases)


def import_weights(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", help="The downloaded release, or the files of one of its models.")
    ],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The checkpoint to write; must not exist yet.")],
    character: Annotated[
        str | None, typer.Option(help="Name of the released model, such as `Qiqi`, if SRC holds several.")
    ] = None,
    levels: Annotated[
        Literal["decoder", "app"], typer.Option(help="Published table that maps motion levels to motion scopes.")
    ] = "decoder",
) -> None:
    """Convert the weights released by the authors of AnimeGamer into a checkpoint.

    SRC holds `MLLM-*/pytorch_model.bin` and `VDM_Decoder-*/10000/mp_rank_00_model_states.pt`. Nothing in them is
    executed; every tensor is matched before anything is written. Note their licence: it excludes use in the European
    Union.

        hf download TencentARC/AnimeGamer --local-dir released/

        animegamer import-weights released/ qiqi/ --character Qiqi
    """
    need_networks()
    from flows.console.progress import STOPPED, Bars
    from pipeline.core.progress import watched

    with importing():
        from models.released.importer import import_weights as convert

    try:
        with Bars().watching(), watched(target.name, "import") as watch:
            imported = convert(source, target, "app" if levels == "app" else "decoder script", character, watch)
    except KeyboardInterrupt:
        say(STOPPED, "yellow")
        raise typer.Exit(130) from None
    say(str(imported))
    typer.echo(target)


def snapshot(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a training run, or of one of its phases: run/joint.")
    ],
    step: Annotated[int | None, typer.Option(help="Steps done by a saved state; by default by the newest one.")] = None,
) -> None:
    """Make a checkpoint to play from a saved state of a training phase, while training continues.

    It has what the phase's result will have, with averaged weights if the recipe has an average. Only the newest states
    are kept: with `snapshot_every` in the recipe, training itself writes such checkpoints, which stay.

        animegamer snapshot run/joint --step 20000

        animegamer play --checkpoint run/joint/snapshots/step-00020000 --serve
    """
    need_networks()
    with importing():
        from training.snapshots import take_snapshot

    with disk_errors(run):
        typer.echo(take_snapshot(run, step))
