"""What every run of training shares: its folder, the splits of its data, and one phase from start to result in it.

    RUN/<phase>/made_from.json     what defines the phase; see training/trainer.py for what else is there

A phase whose result is there is not run again; one that was killed goes on. A phase that would come out different now
(another recipe, other data, another start) is an error, never mixed: name another folder, or remove that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from accelerate import Accelerator, PartialState

from models.progress import PartProgress, unwatched
from models.untrained import Say
from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from pipeline.core.records import Record
from pipeline.publish.samples import SPLITS, Split
from training.config import LoopSettings, Precision
from training.data.shards import open_index, open_shards
from training.data.turns import Catalog
from training.folder_note import note, refuse_another
from training.phase import Phase
from training.trainer import StepWatcher, Trainer


def process_number() -> int:
    """Which of the processes that train together this is; 0 where it is alone."""
    return int(PartialState().process_index)


class MadeFrom(Record):
    """Ingredients of a phase's result: what `made_from.json` holds."""

    data: str
    start: str
    recipe: str


@dataclass(frozen=True)
class RunFolder:
    """A folder, the data, and whoever wants to know how it goes.

    Attributes:
        folder: of the run.
        source: a data set folder or the address of one.
        trackers: names of accelerate's trackers.
        say: told what is being done, a line at a time.
        watch: told of every step of training.
        watch_features: told how far the encoding is.
    """

    folder: Path
    source: str
    trackers: Sequence[str] = ("tensorboard",)
    say: Say = lambda _: None
    watch: StepWatcher | None = None
    watch_features: PartProgress = unwatched

    @property
    def features(self) -> Path:
        """The feature cache."""
        return self.folder / "features"

    def accelerator(self, precision: Precision, section: str) -> Accelerator:
        """Devices, precision and trackers; `section` of the recipe is named where they do not go together."""
        try:
            return Accelerator(
                mixed_precision=precision, log_with=list(self.trackers), project_dir=str(self.folder / "log")
            )
        except ValueError as error:
            raise UserError(f"{section}: {error}; set {section}.precision in the recipe, or --tracker") from error

    def catalogs(self) -> dict[Split, Catalog]:
        """The splits there are; validation does without `val` where there is none.

        Raises:
            UserError: the data set cannot be used, or has nothing to train on.
        """
        here = {shard.split for shard in open_index(self.source).shards}
        kept = self.folder / "catalogs"
        kept.mkdir(parents=True, exist_ok=True)
        wanted: list[Split] = [split for split in SPLITS if split == "train" or split in here]
        return {split: Catalog.read(open_shards(self.source, split), kept / f"{split}.json") for split in wanted}

    def phase(
        self,
        name: str,
        loop: LoopSettings,
        accelerator: Accelerator,
        defined: Mapping[str, str],
        make: Callable[[], Phase],
    ) -> Path:
        """Run a phase unless it is done.

        Args:
            name: of the phase, and of its folder.
            loop: how it is trained.
            accelerator: from `accelerator`.
            defined: what defines it besides the data: `start` and `recipe`.
            make: makes it; called when there is something left to do.

        Returns:
            The folder of the result.

        Raises:
            UserError: the folder is of another run, or training cannot go on.
        """
        with self._alone(accelerator):
            return self._run(name, loop, accelerator, defined, make)

    def _run(
        self,
        name: str,
        loop: LoopSettings,
        accelerator: Accelerator,
        defined: Mapping[str, str],
        make: Callable[[], Phase],
    ) -> Path:
        folder = self.folder / name
        result = folder / "result"
        self._claim(folder, accelerator, defined)
        if result.exists():
            self.say(f"{name}: done already")
            return result
        phase = make()
        accelerator.init_trackers(name)
        if accelerator.is_main_process and len(accelerator.trackers) < len(self.trackers):
            raise UserError(f"not all of {', '.join(self.trackers)} are installed: install the tracker's package")
        trainer = Trainer(phase, loop, folder, accelerator)
        begun = f"goes on after step {trainer.done}" if trainer.done else f"{len(phase.examples)} examples"
        self.say(f"{name}: {begun}, {loop.steps} steps")
        trainer.run(self.watch)
        for tracker in accelerator.trackers:  # not end_training, which would end the process group as well
            tracker.finish()
        accelerator.free_memory()  # it would hold on to the phase's network
        return result

    @contextmanager
    def _alone(self, accelerator: Accelerator) -> Iterator[None]:
        """Keep others out of the folder: what a killed `train all` left behind may still be training in it."""
        with ExitStack() as held_until_the_end:
            if accelerator.is_main_process:
                held_until_the_end.enter_context(held(self.folder, "animegamer train"))
            yield

    def _claim(self, folder: Path, accelerator: Accelerator, defined: Mapping[str, str]) -> None:
        """Note what defines the phase, or compare it with what is noted."""
        data = " ".join(catalog.fingerprint for catalog in self.catalogs().values())
        made_from = MadeFrom(data=data, start=defined["start"], recipe=defined["recipe"]).model_dump()
        refuse_another(folder, made_from)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            note(folder, made_from)
        accelerator.wait_for_everyone()
