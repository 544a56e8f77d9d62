"""A training run of the model: the phases one after the other, each from the checkpoint that the one before left.

RUN/recipe.json       the recipe, complete
RUN/start/            the untrained checkpoint, where none was given
RUN/autoencoder/      the fit of a tiny one, where the recipe asks for it
RUN/features/         see training/data/feature_cache.py
RUN/warm-up/ joint/ game/ adapt/      see training/run_folder.py; each has a whole checkpoint in result/
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from accelerate import Accelerator, PartialState

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.untrained import new_checkpoint
from pipeline.core.atomic import held, write_json
from pipeline.core.errors import UserError
from training.config import LoopSettings, Recipe
from training.data.encoding import FROZEN, Encoder, Name, open_cache
from training.data.shards import open_index
from training.data.turns import Catalog
from training.phase import Phase
from training.phases.assembly import SplitData, adapt_phase, game_phase, shot_phase
from training.phases.autoencoder import fit_autoencoder
from training.run_folder import RunFolder, process_number

PhaseName = Literal["warm-up", "joint", "game", "adapt"]
PHASES: tuple[PhaseName, ...] = ("warm-up", "joint", "game", "adapt")
PRACTICAL = {"micro_batch", "save_every", "keep", "validate_every", "loader_workers"}
"""Settings of a loop that may change in the middle: what comes out is the same but for rounding."""
COMMANDS = {"warm-up": "shot", "joint": "shot", "game": "game", "adapt": "adapt"}
"""The part of `animegamer train` that a phase belongs to."""


class TrainingRun:
    """The phases of one recipe in one folder."""

    def __init__(self, place: RunFolder, recipe: Recipe, start: Path | None = None) -> None:
        """Name what is trained; nothing is read yet.

        Args:
            place: the folder, the data, and who is told.
            recipe: how.
            start: the checkpoint to start from; by default an untrained one is made.
        """
        self.place, self.recipe, self.given = place, recipe, start

    def start(self) -> Checkpoint:
        """The checkpoint of the beginning, made where none was given; called by all processes together.

        Raises:
            UserError: it cannot be made or read, or its networks are not those of the recipe.
        """
        place, recipe = self.place, self.recipe
        new = place.folder / "start"
        if self.given is None and process_number() == 0 and not new.exists():
            self._make_start(new)
        PartialState().wait_for_everyone()
        checkpoint = self._fitting(self.given or new)
        if self.given is None and recipe.autoencoder:
            folder = place.folder / "autoencoder"
            checkpoint = fit_autoencoder(checkpoint, place.source, folder, recipe.autoencoder, place.watch).checkpoint
        return checkpoint

    def _make_start(self, new: Path) -> None:
        with held(self.place.folder, "animegamer train"):
            for left in self.place.folder.glob(f".{new.name}-*"):  # by a run that was killed here: gigabytes
                shutil.rmtree(left)
            if not new.exists():
                new_checkpoint(new, self.recipe.model, self.recipe.shot.joint.seed, self.place.say)

    def features(self) -> Path:
        """Encode all clips with the frozen networks, ahead of phase a. Returns the folder of the features."""
        accelerator = Accelerator()
        self._splits(self._prepared(accelerator), FROZEN, accelerator)
        return self.place.features

    def shot(self) -> Path:
        """Phase a: warm-up and joint training. Returns the folder of the resulting checkpoint."""
        accelerator = self.place.accelerator(self.recipe.shot.precision, "shot")
        checkpoint = self._prepared(accelerator)
        checkpoint = self._phase("warm-up", checkpoint, FROZEN, accelerator, partial(shot_phase, "warm-up"))
        accelerator = self.place.accelerator(self.recipe.shot.precision, "shot")  # with a loss scale of its own
        return self._phase("joint", checkpoint, FROZEN, accelerator, partial(shot_phase, "joint")).folder

    def game(self) -> Path:
        """Phase b. Returns the folder of the resulting checkpoint."""
        accelerator = self.place.accelerator(self.recipe.game.precision, "game")
        names: tuple[Name, ...] = ("patches", "text", "shot_tokens")
        return self._phase("game", self._before("game"), names, accelerator, game_phase).folder

    def adapt(self) -> Path:
        """Phase c. Returns the folder of the resulting checkpoint."""
        accelerator = self.place.accelerator(self.recipe.adapt.precision, "adapt")
        names: tuple[Name, ...] = (*FROZEN, "shot_tokens", "predictions")
        return self._phase("adapt", self._before("adapt"), names, accelerator, adapt_phase).folder

    def _phase(
        self,
        name: PhaseName,
        checkpoint: Checkpoint,
        features: Sequence[Name],
        accelerator: Accelerator,
        make: Callable[[Recipe, Checkpoint, ModelConfig, SplitData, SplitData | None], Phase],
    ) -> Checkpoint:
        """Run a phase, unless it is done or left out. Returns what comes out, or else the checkpoint that went in."""
        loop = self._loop(name)
        if loop.steps == 0:
            self.place.say(f"{name}: left out, it has no steps")
            return checkpoint

        def made() -> Phase:
            train, val = self._splits(checkpoint, features, accelerator)
            return make(self.recipe, checkpoint, self._config_after(checkpoint, train.catalog), train, val)

        defined = {"start": checkpoint.identity(), "recipe": self._recipe_of(name)}
        return Checkpoint.open(self.place.phase(name, loop, accelerator, defined, made))

    def _prepared(self, accelerator: Accelerator) -> Checkpoint:
        """The start; and the record of the recipe, written by the main process alone."""
        folder, checkpoint = self.place.folder, self.start()
        if accelerator.is_main_process:
            write_json(folder / "recipe.json", self.recipe.model_dump(mode="json"))
        return checkpoint

    def _fitting(self, folder: Path) -> Checkpoint:
        """A checkpoint, if its networks are those of the recipe."""
        checkpoint = Checkpoint.open(folder)
        for part in ("size", "shot_encoder", "shot_decoder", "game_model", "conventions"):
            if getattr(checkpoint.config, part) != getattr(self.recipe.model, part):
                raise UserError(
                    f"{folder}/config.json and the recipe differ in {part}: train from another checkpoint, or put its "
                    f"values under [model.{part}] in a TOML file"
                )
        return checkpoint

    def _before(self, phase: PhaseName) -> Checkpoint:
        """The checkpoint that the phase before left, or the nearest one before that where it was left out.

        Where none was trained in this folder, the checkpoint that was given.
        """
        for name in reversed(PHASES[: PHASES.index(phase)]):
            if self._loop(name).steps == 0:
                continue
            result = self.place.folder / name / "result"
            if result.exists():
                return self._fitting(result)
            if self.given is None:
                remedy = f"run `animegamer train {COMMANDS[name]}` first, or name a checkpoint with --from"
                raise UserError(f"{result} is not there yet: {remedy}")
        return self.start()

    def _loop(self, name: PhaseName) -> LoopSettings:
        recipe = self.recipe
        loops = (recipe.shot.warm_up, recipe.shot.joint, recipe.game.loop, recipe.adapt.loop)
        return loops[PHASES.index(name)]

    def _recipe_of(self, name: PhaseName) -> str:
        """What of the recipe a phase depends on, besides the model: that is the checkpoint's."""
        recipe = self.recipe
        section = {"game": recipe.game, "adapt": recipe.adapt}.get(name, recipe.shot)
        loops = dict.fromkeys(("loop", "warm_up", "joint"), PRACTICAL)
        other = {"warm-up": "joint", "joint": "warm_up"}.get(name)
        left_out: dict[str, object] = {**loops, "gradient_checkpointing": True, **({other: True} if other else {})}
        return section.model_dump_json(exclude=left_out)  # type: ignore[arg-type]

    def _splits(
        self, checkpoint: Checkpoint, features: Sequence[Name], accelerator: Accelerator
    ) -> tuple[SplitData, SplitData | None]:
        """The data with all features made; each process encodes its share of the shards."""
        place, splits = self.place, {}
        for split, catalog in place.catalogs().items():
            cache = open_cache(place.features, catalog, checkpoint, self.recipe, features)
            encoder = Encoder(cache, checkpoint, self.recipe, accelerator.device)
            for name in features:
                if accelerator.is_main_process and (size := cache.bytes_to_make(name)):
                    place.say(f"{name} of {split}: {size / 1e6:,.1f} MB to make")
                encoder.make(name, place.watch_features, accelerator.process_index, accelerator.num_processes)
                accelerator.wait_for_everyone()  # a feature may be made of others, of other shards too
            splits[split] = SplitData(catalog, cache)
        return splits["train"], splits.get("val")

    def _config_after(self, checkpoint: Checkpoint, catalog: Catalog) -> ModelConfig:
        """The configuration of what comes out: with the data's motion levels, and its characters by frequency."""
        values = open_index(self.place.source).level_values
        met = Counter(name for turn in catalog.turns for name in turn.sample.caption.characters or ())
        changes = {"characters": tuple(name for name, _ in met.most_common())} if met else {}
        return checkpoint.config.replaced(**changes, **({"level_values": values} if values else {}))
