"""Commands `train` and `recipe`. Heavy imports are inside them, so help is fast and needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from flows.commands.model import need_networks
from flows.console.progress import importing
from flows.console.terminal import say
from flows.train_run import Ablation, RecipeName, StoppedError, TrainPart, TrainRequest, run_parts
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import faults_of

if TYPE_CHECKING:
    from training.config import Recipe as TrainRecipe
    from training.run_folder import RunFolder

RecipeOption = Annotated[
    RecipeName | None,
    typer.Option(
        help="Recipe: `tiny` (default, for a CPU), `full` (for 80 GB), `paper` (`full`, closer to the paper), "
        "`card24` (for 24 GB), ..."
    ),
]
STOPPED = """\
stopped at once: steps after the newest saved state are lost; the same command resumes from that state, or starts over \
without one"""
Ablated = Annotated[Ablation | None, typer.Option(help="Make one change to the recipe, as in the paper's tables.")]


def train(
    part: Annotated[
        TrainPart, typer.Argument(metavar="PART", help="features, shot, game, adapt, all, distill, gc, or gfc.")
    ],
    data: Annotated[
        list[str],
        typer.Option(
            help="Dataset of `animegamer build`: its folder, or an address (https, s3). May be repeated. DATA=2 shows "
            "the clips of DATA twice per epoch."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the run to this folder, or resume the run in it.")],
    start: Annotated[
        Path | None,
        typer.Option("--from", help="Start from this checkpoint if the run has no earlier phase. [default: a new one]"),
    ] = None,
    fork_from: Annotated[
        Path | None,
        typer.Option(
            help="Continue another run from a saved state, in a new folder: RUN/PHASE/states/step-N, or RUN/PHASE for "
            "the newest. The recipe is that run's, with the changes of --config."
        ),
    ] = None,
    recipe: RecipeOption = None,
    ablation: Ablated = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Change keys of the recipe by this TOML file; `animegamer recipe` prints all keys."),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="Share encoded clips between runs in this folder, by content. [default: inside the run]"),
    ] = None,
    tracker: Annotated[
        list[str], typer.Option(help="Send the figures to this tracker of accelerate. May be repeated.")
    ] = ["tensorboard"],  # noqa: B006  # copied by typer
    accelerate: Annotated[
        Path | None,
        typer.Option(help="Train on the GPUs and machines of this file, from `accelerate config` or training/launch/."),
    ] = None,
    machine_rank: Annotated[
        int | None, typer.Option(min=0, help="Number of this machine, from 0, with --accelerate on several machines.")
    ] = None,
    main_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Address of machine 0, with --accelerate on several machines; the first of eight free ports.",
        ),
    ] = None,
    tried: Annotated[
        bool, typer.Option("--try", help="Only run a few steps, with random weights and clips; print time and memory.")
    ] = False,
) -> None:
    """Train the model on the shards of a dataset.

    `shot` trains shot encoder and shot decoder (phase a), `game` the game model on their shot tokens (b), `adapt` the
    shot decoder on the game model's predictions (c). `all` runs these three in turn. `distill` then teaches the shot
    decoder to draw in four steps without guidance (d). `features` encodes the clips with the frozen networks in
    advance, and first prints the disk space needed. `gc` and `gfc` train those two baselines; `--from` is then a
    baseline's folder, at mini a checkpoint.

        animegamer train all --data data/ --out run/
        animegamer play --checkpoint run/adapt/result --serve

    Ctrl-C and SIGTERM save the step in progress. After a stop or a kill, the same command resumes from the newest
    saved state. If you raise `steps` in the recipe, it extends a finished phase. Each phase writes a checkpoint to
    run/PHASE/result, pictures to run/PHASE/pictures, figures to run/log (`tensorboard --logdir run/log`).
    """
    if tried and (fork_from or part in ("features", "gc", "gfc")):
        raise UserError("--try goes with shot, game, adapt, all or distill, and not with --fork-from")
    if not accelerate and (machine_rank is not None or main_address):
        raise UserError("--machine-rank and --main-address go with --accelerate")
    if fork_from and part in ("gc", "gfc"):
        raise UserError("--fork-from goes with the phases of the model, not with a baseline")
    need_networks()
    try:
        request = TrainRequest(
            data=tuple(data),
            out=out,
            start=start,
            fork_from=fork_from,
            recipe=recipe,
            ablation=ablation,
            config=config,
            features=features,
            trackers=tuple(tracker),
            accelerate=accelerate,
            machine_rank=machine_rank,
            main_address=main_address,
        )
    except ValidationError as error:
        raise UserError(faults_of(error)) from None
    if tried:
        _try_phases(part, request)
        return
    recipe_read = _check_paths(part, request)
    if part != "all" and not accelerate:
        typer.echo(_train_part(part, request, recipe_read))
        return
    try:
        typer.echo(run_parts(part, request))
    except StoppedError as stop:
        say(str(stop), "yellow")
        raise typer.Exit(128 + stop.by) from None


def _try_phases(part: TrainPart, request: TrainRequest) -> None:
    """Run steps of the phases of a part, and print what they cost; with `--accelerate`, in processes of their own."""
    if request.accelerate:
        _check_files(part, request)
        typer.echo(run_parts(part, request, tried=True).rstrip())
        return
    recipe = _named_recipe(request)
    with importing():
        from training.processes import process_number
        from training.recipes import ALL, COMMANDS, PHASES, loop_of
        from training.trial import described, try_phase
    hours = 0.0
    for phase in ALL if part == "all" else PHASES:
        loop = loop_of(recipe, phase)
        if part not in ("all", COMMANDS[phase]) or not loop.steps:
            continue
        trial = try_phase(phase, recipe)
        hours += trial.hours if trial else 0
        if process_number() == 0:
            typer.echo(described(phase, loop, trial, datetime.now() + timedelta(hours=hours)))


def recipe(recipe: Annotated[RecipeName, typer.Argument()] = "tiny", ablation: Ablated = None) -> None:
    """Print a recipe as TOML, with the meaning of every key; a `train --config` file needs only the changed keys."""
    from pipeline.core.toml import as_toml
    from training.recipes import read_recipe

    typer.echo(as_toml(read_recipe(recipe, ablation)))


def _check_paths(part: TrainPart, request: TrainRequest) -> TrainRecipe | None:
    """Check the inputs before the networks' packages are imported, and create the folder of the run.

    A fork takes recipe and start from another run. Later phases of an existing run do not need the start.

    Returns:
        The recipe (its file may be a pipe, which can be read only once), or None for a fork.

    Raises:
        UserError: an input cannot be used.
    """
    from models.config import ModelConfig
    from training.baselines.config import NOT_AT_MINI, BaselineConfig
    from training.data.sources import open_index, sources_of
    from training.phase_folder import FORK_NOTE, SavedState

    _check_files(part, request)
    is_begun_fork = (request.out / FORK_NOTE).exists()
    if request.fork_from and not is_begun_fork:  # once begun, the other run is not read any more
        SavedState.at(request.fork_from.absolute())
    recipe = None if request.fork_from or is_begun_fork else _named_recipe(request)
    is_baseline, is_mini = part in ("gc", "gfc"), recipe is not None and recipe.model.size == "mini"
    if is_mini and is_baseline and (part == "gfc" or not request.start):
        raise UserError(NOT_AT_MINI)
    for source in sources_of(request.data):
        open_index(source.address)
    if recipe and request.start and (part not in ("game", "adapt", "distill") or not request.out.exists()):
        (BaselineConfig if is_baseline and not is_mini else ModelConfig).read(request.start)
    if recipe:  # the folder of a fork is made with its state, which can still be refused
        with disk_errors(request.out):
            request.out.mkdir(parents=True, exist_ok=True)
    return recipe


def _check_files(part: TrainPart, request: TrainRequest) -> None:
    if (part == "all" or request.accelerate) and request.config and request.config.is_fifo():
        raise UserError(f"{request.config} is a pipe, which only one process can read; name a file as --config")
    if request.accelerate and not request.accelerate.is_file():
        raise UserError(
            f"{request.accelerate} does not exist; `accelerate config --config_file FILE` writes such a file"
        )
    if request.features and request.features.is_file():
        raise UserError(f"{request.features} is a file; name a folder as --features")


def _train_part(part: TrainPart, request: TrainRequest, recipe_read: TrainRecipe | None) -> Path:
    with _prepared(part, request, recipe_read) as (run_folder, recipe):
        if part == "gc" or part == "gfc":
            from training.baselines.run import train_baseline

            return train_baseline(part, run_folder, recipe, request.start)
        from training.run import TrainingRun

        run = TrainingRun(run_folder, recipe, request.start)
        phases = {"features": run.features, "shot": run.shot, "game": run.game}
        phases |= {"adapt": run.adapt, "distill": run.distill}
        return phases[part]()


def _forked_recipe(request: TrainRequest) -> TrainRecipe:
    """Return the recipe of a fork, from the run that it continues. The first call makes its folder."""
    from training.forks import Fork
    from training.processes import in_main_process

    fork = Fork.of(request.fork_from, request.out) if request.fork_from else Fork.read(request.out)
    assert fork, "its note was there when paths were checked"
    if request.recipe or request.ablation or request.start:
        raise UserError("a fork has recipe and start of the other run: leave out --recipe, --ablation and --from")
    recipe = fork.changed(request.config)
    in_main_process(lambda: fork.make(request.out))
    return recipe


def _named_recipe(request: TrainRequest) -> TrainRecipe:
    from training.recipes import read_recipe

    return read_recipe(request.recipe or "tiny", request.ablation, request.config)


@contextmanager
def _prepared(
    part: TrainPart, request: TrainRequest, recipe_read: TrainRecipe | None
) -> Iterator[tuple[RunFolder, TrainRecipe]]:
    """Open the folder of a run and its recipe, with progress bars during the block."""
    with importing():
        from flows.console.progress import TrainBars
        from training.processes import process_number
        from training.recipes import ALL, COMMANDS, PHASES, loop_of
        from training.run_folder import RunFolder
        from training.termination import Terminated

    bars = TrainBars(silent=process_number() > 0)
    try:
        recipe = recipe_read or _forked_recipe(request)
        phases = [phase for phase in PHASES if COMMANDS[phase] == part] if part == "distill" else ALL
        loops = {phase: loop_of(recipe, phase) for phase in phases}
        bars.phases = {phase: loop.steps * loop.batch_size for phase, loop in loops.items() if loop.steps}
        with disk_errors(request.out), bars.shown():
            callbacks = (bars.say, bars.step, bars.feature)
            data = (request.features, recipe.data.names)
            yield RunFolder(request.out, request.data, request.trackers, *callbacks, *data), recipe
    except Terminated as stop:
        say(f"{stop}; the same command resumes{' from it' if stop.step else ''}", "yellow")
        raise
    except KeyboardInterrupt:
        say(STOPPED, "yellow")
        raise typer.Exit(130) from None
