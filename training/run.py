"""Training run of the model: the phases in sequence, each starting from the checkpoint of the previous one.

RUN/recipe.json       the complete recipe, except later keys that have their defaults
RUN/start/            the untrained checkpoint, if none was given
RUN/autoencoder/      the fit of a tiny autoencoder, if the recipe has one
RUN/features/         see training/data/feature_cache.py
RUN/warm-up/ joint/ game/ adapt/ guide/ distill/    see training/run_folder.py; each has a checkpoint in result/
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path

from accelerate import Accelerator, PartialState

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.hub import check_base
from models.untrained import new_checkpoint
from pipeline.core.atomic import held, write_json
from pipeline.core.errors import UserError
from training.compiling import check_compiler
from training.config import Recipe
from training.data.checks import by_rules_alone, check_batch, check_dataset
from training.data.definitions import FROZEN, TRAINED, Name, bytes_per_clip, open_cache
from training.data.encoding import Encoder
from training.data.feature_cache import share_out, space_needed
from training.data.turns import Catalog, has_padded, offered
from training.data.windows import Windows
from training.forks import Fork
from training.phase import Phase
from training.phase_folder import STATES, PhaseNote
from training.phases.assembly import SplitData, adapt_phase, distill_phase, game_phase, guide_phase, shot_phase
from training.phases.autoencoder import fit_autoencoder
from training.phases.distill import check_teacher, check_unsharded, config_of_student
from training.processes import in_turn, new_accelerator, process_count, process_number, training_device
from training.recipes import ALL, COMMANDS, PHASES, PhaseName, ingredients_of, loop_of
from training.run_folder import RunFolder

_GAME_FEATURES: tuple[Name, ...] = ("patches", "text", "shot_tokens")
_PREDICTED: tuple[Name, ...] = (*FROZEN, "shot_tokens", "predictions")


class TrainingRun:
    """Phases of one recipe in one run folder."""

    def __init__(self, run_folder: RunFolder, recipe: Recipe, start: Path | None = None) -> None:
        """Store the arguments; nothing is read yet.

        Args:
            start: the checkpoint to start from; by default an untrained one is created.
        """
        self.run_folder, self.recipe, self.initial = run_folder, recipe, start

    @cached_property
    def fork(self) -> Fork | None:
        """Its origin, if it is a fork of another run."""
        return Fork.read(self.run_folder.folder)

    def start(self) -> Checkpoint:
        """Return the starting checkpoint, created if none was given. Collective call: all processes take part.

        Raises:
            UserError: it cannot be created or read, or its networks differ from the recipe's.
        """
        run_folder, recipe = self.run_folder, self.recipe
        new = run_folder.folder / "start"
        if self.initial is None and process_number() == 0 and not new.exists():
            self._make_start(new)
        PartialState().wait_for_everyone()
        checkpoint = self._open_matching(self.initial or new)
        if self.initial is None and recipe.autoencoder and not self.fork:
            folder = run_folder.folder / "autoencoder"
            checkpoint = fit_autoencoder(
                checkpoint, run_folder.mixture, folder, recipe.autoencoder, run_folder.watch, run_folder.say
            ).checkpoint
        return checkpoint

    def _make_start(self, new: Path) -> None:
        with held(self.run_folder.folder, "animegamer train"):
            for left in self.run_folder.folder.glob(f".{new.name}-*"):  # gigabytes left by a run killed here
                shutil.rmtree(left)
            if not new.exists():
                new_checkpoint(new, self.recipe.model, self.recipe.shot.joint.seed, self.run_folder.say)

    def features(self) -> Path:
        """Encode all clips with the frozen networks before phase a. Return the folder of the features."""
        self._check_data(*ALL)
        checkpoint, accelerator = self.start(), new_accelerator()
        if accelerator.is_main_process:
            self._note_recipe()
        make_features(self.run_folder, self.recipe, checkpoint, FROZEN, accelerator)
        return self.run_folder.features

    def shot(self) -> Path:
        """Run phase a, warm-up and joint training. Return the folder of the resulting checkpoint."""
        self._check("warm-up", "joint")
        checkpoint = self.start()  # before the accelerator: the autoencoder's fit has one of another precision
        accelerator = self.run_folder.accelerator(self.recipe.shot.precision, "shot")
        checkpoint = self._phase("warm-up", checkpoint, FROZEN, accelerator, partial(shot_phase, "warm-up"))
        # a new accelerator: joint training has its own loss scale
        accelerator = self.run_folder.accelerator(self.recipe.shot.precision, "shot")
        return self._phase("joint", checkpoint, FROZEN, accelerator, partial(shot_phase, "joint")).folder

    def game(self) -> Path:
        """Run phase b. Return the folder of the resulting checkpoint."""
        self._check("game")
        checkpoint = self._previous_checkpoint("game")
        accelerator = self.run_folder.accelerator(self.recipe.game.precision, "game")
        make = partial(self._game_phase, accelerator)
        return self._phase("game", checkpoint, _GAME_FEATURES, accelerator, make).folder

    def adapt(self) -> Path:
        """Run phase c. Return the folder of the resulting checkpoint."""
        self._check("adapt")
        checkpoint = self._previous_checkpoint("adapt")
        accelerator = self.run_folder.accelerator(self.recipe.adapt.precision, "adapt")
        return self._phase("adapt", checkpoint, _PREDICTED, accelerator, adapt_phase).folder

    def distill(self) -> Path:
        """Run phase d, guidance and few steps. Return the folder of the resulting checkpoint."""
        check_unsharded()
        checkpoint = self._previous_checkpoint("guide")
        self._check("guide", "distill")
        parts: tuple[tuple[PhaseName, Callable[..., Phase]], ...] = (("guide", guide_phase), ("distill", distill_phase))
        for name, make in parts:
            if loop_of(self.recipe, name).steps and not (self.fork and self.fork.precedes(name)):
                check_teacher(name, checkpoint)
            # a new accelerator each time: a part has its own loss scale
            accelerator = self.run_folder.accelerator(self.recipe.distill.precision, "distill")
            checkpoint = self._phase(name, checkpoint, _PREDICTED, accelerator, make)
        return checkpoint.folder

    def _phase(
        self,
        name: str,
        checkpoint: Checkpoint,
        features: Sequence[Name],
        accelerator: Accelerator,
        make: Callable[[Recipe, Checkpoint, ModelConfig, SplitData, SplitData | None], Phase],
    ) -> Checkpoint:
        """Run a phase unless it is done. Return its result, or the input checkpoint if the phase has no steps."""
        loop = loop_of(self.recipe, name)
        if self.fork and self.fork.precedes(name):
            self.run_folder.say(f"{name}: done before the fork")
            return checkpoint
        if loop.steps == 0:
            self.run_folder.say(f"{name}: skipped, steps is 0")
            return checkpoint

        def made() -> Phase:
            rollout = self.recipe.adapt.predictions == "rollout"
            train, val = make_features(self.run_folder, self.recipe, checkpoint, features, accelerator, rollout=rollout)
            config = self._config_after(name, checkpoint, train.catalog)
            if accelerator.is_main_process:
                folder = self.run_folder.folder
                PhaseNote.of(folder, self.recipe, config, checkpoint.folder).write(folder / name)
                self._note_recipe()
            with in_turn():
                phase = make(self.recipe, checkpoint, config, train, val)
                phase.network.to(accelerator.device)
            return phase

        defined = {**checkpoint.as_start(), "recipe": ingredients_of(self.recipe, name)}
        if name == "guide":  # the teacher's sampling is the target, and no part of a checkpoint's identity
            defined["sampling"] = checkpoint.config.sampling.model_dump(mode="json")
        return Checkpoint.open(self.run_folder.phase(name, loop, accelerator, defined, made))

    def _game_phase(
        self,
        accelerator: Accelerator,
        recipe: Recipe,
        checkpoint: Checkpoint,
        config: ModelConfig,
        train: SplitData,
        val: SplitData | None,
    ) -> Phase:
        """Return phase b; print the histogram of window lengths for each dataset, and track it as step 0."""
        counts: Counter[int] = Counter()
        for source, part in self.run_folder.mixture.with_turns(train.catalog):
            windows = Windows(part.turns, recipe.game.windows)
            dataset = f"{source.name}, weight {part.weight}: " if train.catalog.mixed else ""
            self.run_folder.say(f"game: {dataset}{windows}")
            counts.update({at: number * part.weight for at, number in enumerate(windows.lengths, start=1)})
        accelerator.log({f"windows/{at}_turns": count / counts.total() for at, count in counts.items()}, step=0)
        return game_phase(recipe, checkpoint, config, train, val)

    def _check_data(self, *phases: PhaseName) -> None:
        """Raise a UserError for unsuitable data before any download or encoding, unless the phases are done."""
        if not self._left(phases):
            return
        train = self.run_folder.catalogs()["train"]
        for source, part in self.run_folder.mixture.with_turns(train):
            check_dataset(part.turns, self.recipe, source.address)
            if poor := by_rules_alone(part.turns):
                captions = sum(bool(turn.instruction) for turn in part.turns)
                self.run_folder.say(f"{poor} of {captions} captions of {source.address} are by rules alone")

    def _check(self, *phases: PhaseName) -> None:
        """Check the data, and processes and compiler; of later phases, only say what cannot work."""
        run = ALL if phases[0] in ALL else PHASES
        for name in self._left(run[run.index(phases[0]) :]):
            try:
                check_batch(name, loop_of(self.recipe, name), process_count())
                check_compiler(name, loop_of(self.recipe, name), training_device())
            except UserError as error:
                if name in phases:
                    raise
                self.run_folder.say(str(error))
        self._check_data(*phases)

    def _left(self, phases: Sequence[PhaseName]) -> list[PhaseName]:
        """Return the phases that have steps to do."""
        here = [name for name in phases if not (self.fork and self.fork.precedes(name))]
        steps = {name: loop_of(self.recipe, name).steps for name in here}
        return [name for name in here if steps[name] and not self.run_folder.is_done(name, steps[name])]

    def _note_recipe(self) -> None:
        write_json(self.run_folder.folder / "recipe.json", self.recipe.ingredients())

    def _open_matching(self, folder: Path) -> Checkpoint:
        """Open a checkpoint. UserError if its networks differ from the recipe's; its window is no part of them."""
        checkpoint = Checkpoint.open(folder)
        config = _with_window(checkpoint.config, self.recipe.model.game_model.window_turns)
        for part in ("size", "shot_encoder", "shot_decoder", "game_model", "conventions"):
            if getattr(config, part) != getattr(self.recipe.model, part):
                raise UserError(
                    f"{folder}/config.json and the recipe differ in {part}: train from another checkpoint, or put its "
                    f"values under [model.{part}] in a TOML file"
                )
        return checkpoint

    def _previous_checkpoint(self, phase: PhaseName) -> Checkpoint:
        """Return the checkpoint of the last preceding phase that has steps.

        If no preceding phase was begun in this folder, return the checkpoint given to the run.
        """
        preceding = [
            name
            for name in PHASES[: PHASES.index(phase)]
            if loop_of(self.recipe, name).steps and not (self.fork and self.fork.precedes(name))
        ]
        folders = [self.run_folder.folder / name for name in preceding]
        begun = any((folder / part).exists() for folder in folders for part in (STATES, "result"))
        if not preceding or (self.initial is not None and not begun):
            return self.start()
        last = preceding[-1]
        result = self.run_folder.folder / last / "result"
        if not result.exists():
            remedy = f"run `animegamer train {COMMANDS[last]}` first"
            other = "--from is for a run without earlier phases" if self.initial else "or name a checkpoint with --from"
            raise UserError(f"{result} does not exist yet: {remedy}; {other}")
        return self._open_matching(result)

    def _config_after(self, name: str, checkpoint: Checkpoint, catalog: Catalog) -> ModelConfig:
        """Return the configuration of the result: the data's level values, and the words that the game page offers.

        Play sees as many turns as the longest windows of training. Phases that train the shot encoder also note which
        frame it saw, and phases that train the shot decoder whether their clips were padded.
        """
        values = self.run_folder.mixture.level_values(catalog)
        words = offered([turn.sample.caption for turn in catalog.turns])
        changes: dict[str, object] = {"together": {}, "levels": None, **words}
        if any(getattr(checkpoint.config, key) != words[key] for key in words if key != "together"):
            changes |= {"other_words": {}, "about": ""}  # both speak of other data
        if values:
            changes["level_values"] = values
        if name in ("warm-up", "joint"):
            changes["encoded_frame"] = self.recipe.shot.frame
        if name in ("guide", "distill"):
            changes |= config_of_student(name, self.recipe.distill, checkpoint.config)
        if name in ("joint", "adapt"):
            changes["still_last_frame"] = has_padded(catalog.turns, checkpoint.config.shot_decoder.frames)
        window_turns = min(self.recipe.game.windows.most_turns, self.recipe.model.game_model.window_turns)
        return _with_window(checkpoint.config.replaced(**changes), window_turns)


def _with_window(config: ModelConfig, window_turns: int) -> ModelConfig:
    """Return the configuration with another number of turns in the context of a prediction."""
    return config.replaced(game_model={**config.game_model.model_dump(), "window_turns": window_turns})


def make_features(
    run_folder: RunFolder,
    recipe: Recipe,
    checkpoint: Checkpoint,
    names: Sequence[Name],
    accelerator: Accelerator,
    *,
    rollout: bool = False,
) -> tuple[SplitData, SplitData | None]:
    """Return the splits `train` and `val` with all features computed. Collective call: all processes take part.

    Args:
        names: features, each after the features that it depends on.
        rollout: predict after the model's own predictions, not after the recorded past.

    Raises:
        UserError: a base is another network, the disk has too little space, or a clip or a network cannot be read.
    """
    for component in checkpoint.config.bases:  # also the bases that only later phases load
        check_base(component, checkpoint.base(component))
    folder, shared = run_folder.features, run_folder.shared_features is not None
    with accelerator.main_process_first():  # it hashes the networks, and remembers the hashes for the others
        splits = {
            split: SplitData(
                catalog, open_cache(folder, catalog, checkpoint, recipe, names, rollout=rollout, shared=shared)
            )
            for split, catalog in run_folder.catalogs().items()
        }
    caches = [split.cache for split in splits.values()]
    if accelerator.is_main_process:
        clips = sum(len(split.catalog) for split in splits.values())
        later = [name for name in TRAINED if name not in names and "predictions" not in names]
        if line := space_needed(caches, names, clips * bytes_per_clip(later, checkpoint.config)):
            run_folder.say(line)
    work = share_out(caches, names, accelerator)
    encoder = Encoder(checkpoint, recipe, accelerator.device, rollout=rollout)
    for name in names:
        encoder.make(name, work[name], run_folder.watch_features)
        accelerator.wait_for_everyone()  # a feature may depend on others, also of other shards
    return splits["train"], splits.get("val")
