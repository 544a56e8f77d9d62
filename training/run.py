"""A training run on disk: the phases one after the other, each from the checkpoint that the one before left.

    RUN/recipe.json          the recipe, complete
    RUN/start/               the untrained checkpoint, where none was given
    RUN/features/            see training/features.py
    RUN/warm-up/ joint/ game/ adapt/      see training/trainer.py; made_from.json says what defines a phase

A phase whose result is there is not run again; one that was killed goes on. A phase that would come out different now
(another recipe, other data, another start) is an error, never mixed: name another folder, or remove that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from accelerate import Accelerator, PartialState
from pydantic import ValidationError

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.untrained import Say, new_checkpoint
from pipeline.records import Record
from pipeline.samples import Split as SplitName
from pipeline.store import replacing
from training.config import LoopSettings, Precision, Recipe
from training.data import Catalog
from training.encoding import FROZEN, Encoder, Name, Progress, open_cache
from training.phases import Split, adapt_phase, game_phase, shot_phase
from training.shard_files import open_index, open_shards
from training.trainer import Phase, Trainer, TrainError, Watch

PhaseName = Literal["warm-up", "joint", "game", "adapt"]
PHASES: tuple[PhaseName, ...] = ("warm-up", "joint", "game", "adapt")


def process_number() -> int:
    """Which of the processes that train together this is; 0 where it is alone."""
    return PartialState().process_index  # type: ignore[no-any-return]


class _MadeFrom(Record):
    """What defines the result of a phase; by name, for the message when it has changed."""

    data: str
    start: str
    recipe: str


class TrainingRun:
    """The phases of one recipe on one data set in one folder."""

    def __init__(
        self,
        folder: Path,
        source: str,
        recipe: Recipe,
        start: Path | None = None,
        *,
        trackers: Sequence[str] = ("tensorboard",),
        say: Say = lambda _: None,
        watch: Watch | None = None,
        watch_features: Progress | None = None,
    ) -> None:
        """Name what is trained; nothing is read yet.

        Args:
            folder: of the run.
            source: a data set folder or the address of one.
            recipe: how.
            start: the checkpoint to start from; by default an untrained one is made.
            trackers: names of accelerate's trackers.
            say: told what is being done, a line at a time.
            watch: told of every step of training.
            watch_features: told how far the encoding is.
        """
        self.folder, self.source, self.recipe, self.given = folder, source, recipe, start
        self.trackers, self.say, self.watch, self.watch_features = list(trackers), say, watch, watch_features

    def start(self) -> Checkpoint:
        """The checkpoint of the beginning; made where none was given and none is there.

        Raises:
            CheckpointError: it cannot be made or read.
            TrainError: its networks are not those of the recipe.
        """
        if self.given is None and not (self.folder / "start").exists():
            new_checkpoint(self.folder / "start", self.recipe.model, self.recipe.shot.joint.seed, self.say)
        checkpoint = Checkpoint.open(self.given or self.folder / "start")
        for part in ("size", "shot_encoder", "shot_decoder", "game_model", "conventions"):
            if getattr(checkpoint.config, part) != getattr(self.recipe.model, part):
                raise TrainError(
                    f"{checkpoint.folder}/config.json and the recipe differ in {part}: train from another checkpoint, "
                    f"or put its values under [model.{part}] in a TOML file"
                )
        return checkpoint

    def features(self) -> Path:
        """Encode all clips with the frozen networks, ahead of phase a. Returns the folder of the features."""
        accelerator = Accelerator()
        self._splits(self._prepared(accelerator), FROZEN, accelerator)
        return self.folder / "features"

    def shot(self) -> Path:
        """Phase a: warm-up and joint training. Returns the folder of the resulting checkpoint."""
        accelerator = self._accelerator(self.recipe.shot.precision, "shot")
        checkpoint = self._prepared(accelerator)
        for part in ("warm-up", "joint"):
            loop = self.recipe.shot.warm_up if part == "warm-up" else self.recipe.shot.joint
            checkpoint = self._phase(
                part, loop, checkpoint, FROZEN, accelerator, lambda *given, part=part: shot_phase(part, *given)
            )
        return checkpoint.folder

    def game(self) -> Path:
        """Phase b. Returns the folder of the resulting checkpoint."""
        accelerator = self._accelerator(self.recipe.game.precision, "game")
        checkpoint, names = self._after("joint", "shot"), (*FROZEN[1:], "shot_tokens")
        return self._phase("game", self.recipe.game.loop, checkpoint, names, accelerator, game_phase).folder

    def adapt(self) -> Path:
        """Phase c. Returns the folder of the resulting checkpoint."""
        accelerator = self._accelerator(self.recipe.adapt.precision, "adapt")
        names: tuple[Name, ...] = (*FROZEN, "shot_tokens", "predictions")
        checkpoint = self._after("game", "game")
        return self._phase("adapt", self.recipe.adapt.loop, checkpoint, names, accelerator, adapt_phase).folder

    def bytes_to_make(self) -> dict[Name, int]:
        """Disk space that `features` will take, by feature, for what is missing or stale."""
        checkpoint, sizes = self.start(), dict.fromkeys(FROZEN, 0)
        for split in self._catalogs().values():
            cache = open_cache(self.folder / "features", split, checkpoint, self.recipe, FROZEN)
            for name in FROZEN:
                sizes[name] += cache.bytes_to_make(name)
        return sizes

    def _phase(
        self,
        name: PhaseName,
        loop: LoopSettings,
        checkpoint: Checkpoint,
        features: Sequence[Name],
        accelerator: Accelerator,
        make: Callable[[Recipe, Checkpoint, ModelConfig, Split, Split | None], Phase],
    ) -> Checkpoint:
        """Run a phase, unless it is done or left out. Returns what comes out, or else the checkpoint that went in."""
        if loop.steps == 0:
            self.say(f"{name}: left out, it has no steps")
            return checkpoint
        folder = self.folder / name
        self._claim(folder, name, checkpoint, accelerator)
        result = folder / "result"
        if result.exists():
            self.say(f"{name}: done already")
            return Checkpoint.open(result)
        train, val = self._splits(checkpoint, features, accelerator)
        config = self._config_after(checkpoint, train.catalog)
        phase = make(self.recipe, checkpoint, config, train, val)
        accelerator.init_trackers(name)
        trainer = Trainer(phase, loop, folder, accelerator)
        where = f"goes on after step {trainer.done}" if trainer.done else f"{len(phase.examples)} examples"
        self.say(f"{name}: {where}, {loop.steps} steps")
        result = trainer.run(self.watch)
        for tracker in accelerator.trackers:  # not end_training, which would end the process group as well
            tracker.finish()
        accelerator.free_memory()  # it would hold on to the phase's network
        return Checkpoint.open(result)

    def _prepared(self, accelerator: Accelerator) -> Checkpoint:
        """The start and the record of the recipe, written by the main process alone."""
        if accelerator.is_main_process:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.start()
            (self.folder / "recipe.json").write_text(self.recipe.model_dump_json(indent=2) + "\n", encoding="utf-8")
        accelerator.wait_for_everyone()
        return self.start()

    def _after(self, before: PhaseName, command: str) -> Checkpoint:
        """The checkpoint that an earlier phase left, or the nearest one before where that was left out."""
        steps = {
            "warm-up": self.recipe.shot.warm_up.steps,
            "joint": self.recipe.shot.joint.steps,
            "game": self.recipe.game.loop.steps,
        }
        for name in reversed(PHASES[: PHASES.index(before) + 1]):
            if steps[name] == 0:
                continue
            result = self.folder / name / "result"
            if not result.exists():
                raise TrainError(f"{result} is not there yet: run `animegamer train {command}` first")
            return Checkpoint.open(result)
        return self.start()

    def _claim(self, folder: Path, name: PhaseName, checkpoint: Checkpoint, accelerator: Accelerator) -> None:
        """Write down what defines the phase, or compare it with what is written."""
        path = folder / "made_from.json"
        now = _MadeFrom(
            data=" ".join(catalog.fingerprint for catalog in self._catalogs().values()),
            start=checkpoint.identity(),
            recipe=self._recipe_of(name),
        )
        if path.exists():
            try:
                before = _MadeFrom.model_validate_json(path.read_bytes())
            except ValidationError as error:
                raise TrainError(f"{path} is damaged: remove {folder} and train this phase again") from error
            changed = [field for field in _MadeFrom.model_fields if getattr(before, field) != getattr(now, field)]
            if changed:
                raise TrainError(
                    f"{folder} was begun with another {' and another '.join(changed)}: name another --out, or remove "
                    "that folder to train this phase again"
                )
        elif accelerator.is_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_text(now.model_dump_json())
        accelerator.wait_for_everyone()

    def _recipe_of(self, name: PhaseName) -> str:
        """What of the recipe a phase depends on."""
        recipe = self.recipe
        if name in ("warm-up", "joint"):
            section = recipe.shot.model_dump(exclude={"joint" if name == "warm-up" else "warm_up"})
        else:
            section = (recipe.game if name == "game" else recipe.adapt).model_dump()
        return repr(section)

    def _catalogs(self) -> dict[SplitName, Catalog]:
        """The splits there are; validation does without `val` where there is none."""
        here = {shard.split for shard in open_index(self.source).shards}
        splits: list[SplitName] = ["train", *(["val"] if "val" in here else [])]  # type: ignore[list-item]
        kept = self.folder / "catalogs"
        kept.mkdir(parents=True, exist_ok=True)
        return {split: Catalog.read(open_shards(self.source, split), kept / f"{split}.json") for split in splits}

    def _splits(
        self, checkpoint: Checkpoint, features: Sequence[Name], accelerator: Accelerator
    ) -> tuple[Split, Split | None]:
        """The data with all features made; each process encodes its share of the shards."""
        splits = {}
        for split, catalog in self._catalogs().items():
            cache = open_cache(self.folder / "features", catalog, checkpoint, self.recipe, features)
            encoder = Encoder(cache, checkpoint, self.recipe, accelerator.device)
            for name in features:
                encoder.make(name, self.watch_features, accelerator.process_index, accelerator.num_processes)
                accelerator.wait_for_everyone()  # predictions look at the shot tokens of other shards
            splits[split] = Split(catalog, cache)
        return splits["train"], splits.get("val")

    def _config_after(self, checkpoint: Checkpoint, catalog: Catalog) -> ModelConfig:
        """The configuration of what comes out: with the data's motion levels, and its characters by frequency."""
        values = open_index(self.source).level_values
        met = Counter(name for turn in catalog.turns for name in turn.sample.caption.characters or ())
        changes = {"characters": tuple(name for name, _ in met.most_common())} if met else {}
        return checkpoint.config.replaced(**changes, **({"level_values": values} if values else {}))

    def _accelerator(self, precision: Precision, name: str) -> Accelerator:
        try:
            return Accelerator(mixed_precision=precision, log_with=self.trackers, project_dir=str(self.folder / "log"))
        except ValueError as error:
            raise TrainError(f"{name}: {error}; set `precision` in the recipe's section, or `--tracker`") from error
