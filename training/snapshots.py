"""Snapshot: a checkpoint to play, from a saved state of a phase in progress, with averaged weights if there are any.

PHASE/snapshots/step-00020000/      the files of the phase's result, after this number of steps

It is built on the CPU from the state, the phase's starting checkpoint and `begun.json`. It needs neither the data nor a
GPU, and training continues meanwhile. With `snapshot_every` in the recipe, training writes snapshots itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from accelerate import Accelerator, PartialState

from models.checkpoint import Checkpoint
from pipeline.core.errors import UserError
from training.data.feature_cache import FeatureCache
from training.data.turns import Catalog
from training.forks import Fork, link_into
from training.phase import Phase
from training.phase_folder import STATES, PhaseNote, SavedState, folder_name, no_state
from training.phases.assembly import SplitData, adapt_phase, distill_phase, game_phase, guide_phase, shot_phase
from training.recipes import PHASES, PhaseName, loop_of
from training.trainer import SNAPSHOTS, Trainer

_MAKE: Mapping[PhaseName, Callable[..., Phase]] = {
    "warm-up": partial(shot_phase, "warm-up"),
    "joint": partial(shot_phase, "joint"),
    "game": game_phase,
    "adapt": adapt_phase,
    "guide": guide_phase,
    "distill": distill_phase,
}


def take_snapshot(folder: Path, step: int | None = None) -> Path:
    """Write the snapshot of a saved state, unless there is one. Return its folder.

    Args:
        folder: folder of a run, or of one of its phases.
        step: number of steps done; by default, the newest state's.

    Raises:
        UserError: no phase or several phases have such a state, or the starting checkpoint is gone.
    """
    phase = _phase_of(folder, step)
    step = SavedState.at(phase).step if step is None else step
    snapshot = phase / SNAPSHOTS / folder_name(step)
    if not snapshot.exists():
        _write(SavedState.of(phase, step), snapshot)
    return snapshot


def _phase_of(folder: Path, step: int | None) -> Path:
    """Return the folder of the only phase that has a state or a snapshot of a step, or any state."""
    phases = [each for each in (folder, *(folder / name for name in PHASES)) if (each / STATES).is_dir()]
    if not phases:
        raise UserError(f"{folder} has no saved states: name the folder of a run, as in `train --out`, or of its phase")
    having = phases
    if step is not None:
        kinds = (STATES, SNAPSHOTS)
        having = [each for each in phases if any((each / kind / folder_name(step)).is_dir() for kind in kinds)]
    if having and having[0].name not in PHASES:
        raise UserError(f"{having[0]} has no snapshots: choose one of the phases {', '.join(PHASES)}")
    if len(having) > 1:
        raise UserError(f"{' and '.join(map(str, having))} have saved states: name the folder of one phase")
    if not having:
        raise no_state(phases, step or 0)
    return having[0]


def _write(state: SavedState, snapshot: Path) -> None:
    PartialState(cpu=True)  # first of all: a phase would choose a GPU, which training may fill
    note, name = PhaseNote.read(state.phase), state.phase.name
    checkpoint, fork = Checkpoint.open(note.started_from(state.phase)), Fork.read(state.phase.parent)
    nothing = Catalog("", (), ())
    phase = _MAKE[name](  # type: ignore[index]
        note.recipe, checkpoint, note.config, SplitData(nothing, FeatureCache(snapshot, nothing, ())), None
    )
    snapshot.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".state-", dir=snapshot.parent) as alone:
        link_into(Path(alone), state)  # training may remove it meanwhile
        origin = fork.origin_of(name) if fork else None
        trainer = Trainer(phase, loop_of(note.recipe, name), Path(alone), Accelerator(cpu=True), origin)
        trainer.export(snapshot)
