"""Training runs that several claims of the learning benchmark share, and the result of a claim."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.learning.runs import Learned, fit_settings, learn, recipe_of, say_if_earlier, with_config
from examples.world.learning_films import FASTER, FIRST, SECOND, write_films
from flows.console.progress import TrainBars
from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.untrained import new_checkpoint
from training.phases.autoencoder import Fitted, fit_autoencoder
from training.recipes import ablation


@dataclass(frozen=True)
class Steps:
    """Optimizer steps of each run; the defaults reach the aims."""

    stills: int = 1000
    clips: int = 700
    shots: int = 1000
    faster: int = 800
    game: int = 450
    free_text: int = 450
    early_game: int = 150
    """Steps of the game model that adaptation uses; kept low, since perfect predictions leave nothing to adapt to."""
    adapt: int = 100


@dataclass(frozen=True)
class Finding:
    """Result of a claim."""

    aim: str
    measured: str
    reached: bool
    pictures: tuple[Path, ...] = ()


class Bench:
    """Training runs used by the claims, each made at its first access."""

    def __init__(self, out: Path, steps: Steps = Steps()) -> None:
        """Set the output folder; no run is made yet."""
        self.out, self.steps = out, steps

    @cached_property
    def start(self) -> Checkpoint:
        """Untrained checkpoint."""
        folder = self.out / "start"
        return Checkpoint.open(folder) if folder.exists() else new_checkpoint(folder, tiny_config())

    @cached_property
    def fitted(self) -> Fitted:
        """Autoencoder fitted to all clips."""
        data, bars = write_films(self.out / "data" / "all", [FIRST, SECOND, FASTER]), TrainBars()
        say_if_earlier(self.out / "autoencoder" / "clips" / "result")
        with bars.shown():
            settings = fit_settings(self.steps.stills, self.steps.clips)
            return fit_autoencoder(self.start, data, self.out / "autoencoder", settings, bars.step)

    @cached_property
    def eight(self) -> Path:
        """Dataset of eight clips."""
        return write_films(self.out / "data" / "eight", [FIRST])

    @cached_property
    def shots(self) -> Learned:
        """Joint training on eight clips."""
        recipe = recipe_of("shot", {"steps": self.steps.shots, "batch_size": 8, "micro_batch": 8})
        return learn("shot", self.out / "shots", self.eight, self.fitted.checkpoint, recipe)

    @cached_property
    def faster(self) -> Learned:
        """Joint training on one clip at five speeds."""
        data = write_films(self.out / "data" / "faster", [FASTER])
        recipe = recipe_of("shot", {"steps": self.steps.faster, "batch_size": 5, "micro_batch": 5})
        return learn("shot", self.out / "faster", data, self.fitted.checkpoint, recipe)

    @cached_property
    def game(self) -> Learned:
        """Game model trained on twenty turns, which include the eight clips."""
        return self.game_from(self.shots.after)

    @cached_property
    def adapted(self) -> Learned:
        """Adaptation to the predictions of a partly trained game model for the eight clips."""
        data = write_films(self.out / "data" / "twenty", [FIRST, SECOND])
        early = recipe_of("game", {"steps": self.steps.early_game, "batch_size": 4, "micro_batch": 4})
        game = learn("game", self.out / "early-game", data, self.shots.after, early)
        recipe = recipe_of("adapt", {"steps": self.steps.adapt, "batch_size": 8, "micro_batch": 8})
        return learn("adapt", self.out / "adapt", self.eight, game.after, recipe)

    def game_from(self, start: Checkpoint, *, history: bool = True) -> Learned:
        """Train the game model on twenty turns, with or without past turns, on shot tokens of `start`."""
        data = write_films(self.out / "data" / "twenty", [FIRST, SECOND])
        recipe = recipe_of("game", {"steps": self.steps.game, "batch_size": 4, "micro_batch": 4})
        if history:
            return learn("game", self.out / "game", data, start, recipe)
        recipe = ablation("no-history", recipe)
        config = start.config.replaced(game_model=recipe.model.game_model)
        start = with_config(start, self.out / "no-history-start", config)
        return learn("game", self.out / "no-history", data, start, recipe)

    def worded(self, share: float) -> Learned:
        """Train the game model on twenty turns with a share of free text, on tokens of an untrained shot encoder."""
        data = write_films(self.out / "data" / "twenty", [FIRST, SECOND])
        loop = {"steps": self.steps.free_text, "batch_size": 4, "micro_batch": 4}
        recipe = recipe_of("game", loop, game={"free_text": share, "windows": {"most_turns": 2}})
        return learn("game", self.out / f"free-text-{share}", data, self.start, recipe)
