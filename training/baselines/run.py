"""Training run of a baseline in a run folder: `animegamer train gc` and `gfc`.

RUN/start-gc/      the untrained baseline, unless one was given; written again until RUN/gc is begun from it
RUN/gc/            see training/run_folder.py; result/ is a playable baseline
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

from accelerate import Accelerator

from models.checkpoint import Checkpoint
from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from training.baselines.config import NOT_AT_MINI, full, tiny
from training.baselines.encoding import fill_features, open_features
from training.baselines.folder import BaselineFolder, new_baseline, new_mini_gc
from training.baselines.phases import gc_phase, gfc_phase
from training.compiling import check_compiler
from training.config import BaselineSettings, Recipe
from training.data.checks import check_batch, check_captions
from training.data.definitions import made_by_files
from training.data.feature_cache import FeatureCache, share_out, space_needed
from training.phase import Phase
from training.processes import frozen_dtype, in_turn, process_count, training_device
from training.recipes import ON_TILES
from training.run_folder import RunFolder


def train_baseline(
    kind: Literal["gc", "gfc"], run_folder: RunFolder, recipe: Recipe, start: Path | None = None
) -> Path:
    """Train a baseline: its adapters, or at `mini` a whole transformer. Return the folder of the result.

    Args:
        start: a baseline to start from; by default an untrained one of the recipe's size is created. At `mini` a
            checkpoint of that size, whose bases an untrained GC gets.

    Raises:
        UserError: `start` is of another kind, the folder belongs to another run, a pipeline cannot be loaded, or there
            is no such baseline at `mini`.
    """
    settings = recipe.gc if kind == "gc" else recipe.gfc
    if not (run_folder.folder / kind / "result").exists():
        check_batch(kind, settings.loop, process_count())
        check_compiler(kind, settings.loop, training_device())
        for source, part in run_folder.mixture.with_turns(run_folder.catalogs()["train"]):
            check_captions(part.turns, source.address)
    accelerator = run_folder.accelerator(settings.precision, kind)
    baseline = _start(kind, run_folder, recipe, start, accelerator)
    if baseline.config.kind != kind:
        raise UserError(
            f"{baseline.folder} is a {baseline.config.kind}: train it as {baseline.config.kind}, or start from a {kind}"
        )

    tiled = kind == "gc" and recipe.features.tiled  # gfc encodes single pictures, which need no tiles

    def made() -> Phase:
        caches = _caches(baseline, run_folder, accelerator, tiled=tiled)
        with in_turn():
            return _phase(kind, baseline, settings, caches, recipe.validation.clips, accelerator)

    if _is_mini(recipe) and start:  # its start is a function of the checkpoint
        trained = Checkpoint.open(start).as_start()
    else:
        trained = made_by_files("start", *sorted(baseline.folder.glob("*.*")))
    defined = {**trained, "recipe": {**settings.ingredients(), **(ON_TILES if tiled else {})}}
    return run_folder.phase(kind, settings.loop, accelerator, defined, made)


def _start(
    kind: Literal["gc", "gfc"], run_folder: RunFolder, recipe: Recipe, start: Path | None, accelerator: Accelerator
) -> BaselineFolder:
    if _is_mini(recipe):
        if kind != "gc" or start is None:
            raise UserError(NOT_AT_MINI)
    elif start:
        return BaselineFolder.open(start)
    if accelerator.is_main_process:
        _make_start(kind, run_folder, recipe, start)
    accelerator.wait_for_everyone()
    baseline = BaselineFolder.open(run_folder.folder / f"start-{kind}")
    if baseline.config.size != recipe.model.size:
        raise UserError(
            f"{baseline.folder} is of size {baseline.config.size}, and the recipe of size {recipe.model.size}: name "
            f"another --out, or remove {run_folder.folder / kind} to train it again"
        )
    return baseline


def _make_start(kind: Literal["gc", "gfc"], run_folder: RunFolder, recipe: Recipe, checkpoint: Path | None) -> None:
    """Write an untrained baseline of the recipe's size, at `mini` on the bases of a checkpoint, unless it is there."""
    new, seed = run_folder.folder / f"start-{kind}", recipe.shot.joint.seed
    with held(run_folder.folder, "animegamer train"):
        if new.exists() and not (run_folder.folder / kind / "made_from.json").exists():
            shutil.rmtree(new)  # nothing was trained from it, and it may be of another checkpoint or size
        if new.exists():
            return
        if checkpoint:
            new_mini_gc(new, Checkpoint.open(checkpoint), seed)
        else:
            new_baseline(new, full(kind) if recipe.model.size == "full" else tiny(kind), seed)


def _is_mini(recipe: Recipe) -> bool:
    return recipe.model.size == "mini"


def _caches(
    baseline: BaselineFolder, run_folder: RunFolder, accelerator: Accelerator, *, tiled: bool
) -> list[FeatureCache]:
    """Return filled feature caches of `train` and, if it exists, `val`."""
    own, shared = run_folder.folder / f"features-{baseline.config.kind}", run_folder.shared_features
    with accelerator.main_process_first():  # it hashes the networks, and remembers the hashes for the others
        caches = [
            open_features(baseline, shared or own, catalog, tiled=tiled, shared=shared is not None)
            for catalog in run_folder.catalogs().values()
        ]
    names = tuple(caches[0].features)
    if accelerator.is_main_process and (line := space_needed(caches, names)):
        run_folder.say(line)
    work = share_out(caches, names, accelerator)
    fill_features(baseline, work, accelerator.device, run_folder.watch_features, tiled=tiled)
    accelerator.wait_for_everyone()
    return caches


def _phase(
    kind: Literal["gc", "gfc"],
    baseline: BaselineFolder,
    settings: BaselineSettings,
    caches: list[FeatureCache],
    clips: int,
    accelerator: Accelerator,
) -> Phase:
    train, val = caches[0], caches[1] if len(caches) > 1 else None
    options: dict[str, Any] = {
        "seed": settings.loop.seed,
        "clips": clips,
        "frozen": frozen_dtype(settings.precision),
        "gradient_checkpointing": settings.gradient_checkpointing,
    }
    if kind == "gfc":
        return gfc_phase(baseline, train, val, **options)
    return gc_phase(baseline, train, val, dropout=settings.dropout, device=accelerator.device, **options)
