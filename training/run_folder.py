"""Run folder: results of the phases, data splits, and the run of one phase from start to result.

    RUN/<phase>/made_from.json     ingredients of the phase; training/trainer.py lists the other files

A phase with a result is not run again, and a killed phase resumes from its newest state. Resuming with another recipe,
other data or another starting checkpoint is an error: name another folder, or remove this one. Only the steps of a
phase may change. A finished phase with more steps resumes from its last state, and its result so far becomes a
snapshot.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from models.engine_options import PartProgress, unwatched
from models.untrained import Say
from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from pipeline.publish.samples import Split
from training.config import LoopSettings, Names, Precision
from training.data.mixture import Mixture
from training.data.turns import Catalog
from training.forks import Fork
from training.phase import Phase
from training.phase_folder import STATES, check_made_from, folder_name, newest, note_made_from
from training.processes import new_accelerator, release_network
from training.recipes import PHASES, without_steps
from training.trainer import SNAPSHOTS, StepWatcher, Trainer


@dataclass(frozen=True)
class RunFolder:
    """Folder, data and callbacks of a run.

    Attributes:
        folder: folder of the run.
        source: folder or address of a dataset; or several, each with an optional weight, such as `films/ponyo=2`.
        trackers: names of accelerate's trackers.
        say: callback for log lines.
        watch: callback after every training step.
        watch_features: callback for the progress of encoding.
        shared_features: folder of features for several runs; by default each run has its own.
        names: treatment of a name in the casts of several datasets.
    """

    folder: Path
    source: str | Sequence[str]
    trackers: Sequence[str] = ("tensorboard",)
    say: Say = lambda _: None
    watch: StepWatcher | None = None
    watch_features: PartProgress = unwatched
    shared_features: Path | None = None
    names: Names = "joined"

    @cached_property
    def mixture(self) -> Mixture:
        """Its datasets."""
        return Mixture.of(self.source, self.names)

    @property
    def features(self) -> Path:
        """Folder of the feature cache."""
        return self.shared_features or self.folder / "features"

    def accelerator(self, precision: Precision, section: str) -> Accelerator:
        """Return an accelerator. UserError, naming the recipe's `section`, if precision or trackers do not fit.

        Phases of one process may differ in precision.
        """
        try:
            accelerator = new_accelerator(
                precision, log_with=list(self.trackers) or None, project_dir=str(self.folder / "log")
            )
        except ValueError as error:
            raise UserError(f"{section}: {error}; set {section}.precision in the recipe, or --tracker") from error
        if precision == "auto":
            self.say(f"{section}: precision {accelerator.mixed_precision}, as suits {accelerator.device}")
        return accelerator

    def catalogs(self) -> dict[Split, Catalog]:
        """Return the catalogs of the splits that exist; `val` is optional.

        Raises:
            UserError: the dataset cannot be used, or has no `train` split.
        """
        cached = self.folder / "catalogs"
        cached.mkdir(parents=True, exist_ok=True)
        return self.mixture.catalogs(cached)

    def phase(
        self,
        name: str,
        loop: LoopSettings,
        accelerator: Accelerator,
        defined: Mapping[str, Any],
        make: Callable[[], Phase],
    ) -> Path:
        """Run a phase unless it is done. Return the folder of its result.

        Args:
            defined: its ingredients apart from the data: `start`, `recipe`, and `encoder` if the start contains one.
            make: factory of the phase; called only if there is no result yet, with the trackers ready.

        Raises:
            UserError: the folder belongs to another run, or training cannot continue.
        """
        result, is_main = self.folder / name / "result", accelerator.is_main_process
        # Lock the folder: processes left by a killed `train all` may still be training in it.
        with held(self.folder, "animegamer train") if is_main else nullcontext():
            self._claim(name, loop, accelerator, defined)
            if result.exists():
                self.say(f"{name}: done already")
                return result
            accelerator.init_trackers(name)
            if is_main and len(accelerator.trackers) < len(self.trackers):
                raise UserError(f"not all of {', '.join(self.trackers)} are installed: install the tracker's package")
            phase, fork = make(), Fork.read(self.folder)
            trainer = Trainer(phase, loop, result.parent, accelerator, fork.origin_of(name) if fork else None)
            begun = f"resumes after step {trainer.done}" if trainer.done else f"{len(phase.examples)} examples"
            self.say(f"{name}: {begun}, {loop.steps} steps")
            trainer.run(self.watch, self.say)
            for tracker in accelerator.trackers:  # not end_training: it would also end the process group
                tracker.finish()
            del trainer, phase
            release_network(accelerator)  # before the features of the next phase are encoded
        return result

    def steps_done(self, name: str) -> int | None:
        """Return the number of steps of a phase's newest state; None if it has none."""
        return newest(self.folder / name / STATES)

    def is_done(self, name: str, steps: int) -> bool:
        """Return whether a phase has a result, of at least so many steps; its states may have been removed."""
        done = self.steps_done(name)
        return (self.folder / name / "result").exists() and (done is None or done >= steps)

    def _claim(self, name: str, loop: LoopSettings, accelerator: Accelerator, defined: Mapping[str, Any]) -> None:
        """Write the ingredients of the phase, or compare them with the noted ones.

        Raises:
            UserError: ingredients besides the steps differ, or the steps cannot be changed.
        """
        folder = self.folder / name
        catalogs = self.catalogs()
        data = " ".join(catalog.fingerprint for catalog in catalogs.values())
        weights = [source.weight for source in self.mixture.sources]
        if len(set(weights)) > 1:
            data += f" weights {weights}"
        made_from: dict[str, Any] = {"data": data, **defined}
        parts = catalogs["train"].parts
        if len(parts) > 1:  # examples follow the order of the datasets; their folders may be renamed
            made_from["order"] = " ".join(part.turns[0].sample.film_id for part in parts)
        done, result = self.steps_done(name), folder / "result"
        if done is None and result.exists():
            check_made_from(folder, made_from)  # without a state, the phase cannot take more steps
        else:
            check_made_from(folder, made_from, without_steps)
        if done is not None and done > loop.steps:
            raise UserError(f"{folder} has done {done} steps: its steps can be raised, but not be {loop.steps}")
        is_longer = result.exists() and done is not None and done < loop.steps
        if is_longer and (used := self._begun_after(name)):
            raise UserError(
                f"{folder} has {done} steps, and {used[0].name} was begun from its result: for {loop.steps} steps, "
                f"continue in a new folder (--fork-from {folder}), or remove {' and '.join(map(str, used))}"
            )
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            if is_longer:  # the result becomes a snapshot, and replaces an earlier one of the same state
                snapshot = folder / SNAPSHOTS / folder_name(done or 0)
                snapshot.parent.mkdir(exist_ok=True)
                shutil.rmtree(snapshot, ignore_errors=True)
                result.rename(snapshot)
            note_made_from(folder, made_from)  # last: a folder with a result and this note counts as finished
        accelerator.wait_for_everyone()

    def _begun_after(self, name: str) -> list[Path]:
        """Return the folders of the phases begun after a phase of the model."""
        later = PHASES[PHASES.index(name) + 1 :] if name in PHASES else ()
        return [self.folder / each for each in later if (self.folder / each / "made_from.json").exists()]
