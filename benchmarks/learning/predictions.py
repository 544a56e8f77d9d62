"""Predictions to adapt to, compared: the modes of `adapt.predictions` by the loss on what play produces.

Shot networks and game models learn painted stories; each mode then adapts the shot decoder to predictions of the
learned stories. Its loss is measured on other stories, after predictions that are rolled out as in play.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import get_args

from benchmarks.learning.bench import Bench, Finding, spread_of
from benchmarks.learning.runs import (
    Learned,
    encoded,
    fit_settings,
    learn,
    recipe_of,
    say_if_earlier,
    shot_loss,
)
from benchmarks.learning.stories import GAME, LOOP, learned_data, played_data, untrained
from flows.console.display import TrainBars
from models.checkpoint import Checkpoint
from training.config import Predictions, Recipe
from training.data.definitions import FROZEN
from training.phases.autoencoder import fit_autoencoder
from training.recipes import merged, tiny

_STILLS, _CLIPS, _SHOTS, _GAME, _ADAPT = 500, 200, 600, 400, 200
"""Steps of the autoencoder on stills and on clips, of joint training, of phases b and c."""
_MEASURED_CLIPS = 120
_NOT_ADAPTED = "not adapted"


def predictions_claim(bench: Bench) -> Finding:
    """Measure the modes: the default lowers the loss, and no other mode lowers it further with every seed."""
    out = bench.out / "predictions"
    shots = _shots(out)
    rows = [_losses(out, shots, seed) for seed in range(bench.steps.prediction_seeds)]
    measured = "; ".join(f"{name} {spread_of([row[name] for row in rows])}" for name in rows[0])
    default = tiny().adapt.predictions
    others = set(rows[0]) - {default, _NOT_ADAPTED}
    helps = fmean(row[default] for row in rows) < fmean(row[_NOT_ADAPTED] for row in rows)
    beaten = any(all(row[mode] < row[default] for row in rows) for mode in others)
    return Finding(f"lower; no mode always below `{default}`", measured, helps and not beaten)


def _losses(out: Path, shots: Checkpoint, seed: int) -> dict[str, float]:
    """Return the shot decoder's loss on rolled-out predictions of the played stories: not adapted, and by mode."""
    data, plain = learned_data(out), _recipe(shots, seed)
    folder, features = out / f"game-{seed}", out / "features"
    game = learn("game", folder, data, shots, plain, features)
    measured = _on_played(out, game)
    found = {_NOT_ADAPTED: shot_loss(measured.adaptation(game.after))}
    for mode in get_args(Predictions):
        recipe = Recipe.model_validate(merged(plain.model_dump(), {"adapt": {"predictions": mode}}))
        learned = learn("adapt", out / f"{mode}-{seed}", data, game.after, recipe, features)
        found[mode] = shot_loss(measured.adaptation(learned.after))
    return found


def _shots(out: Path) -> Checkpoint:
    """Return a checkpoint with the autoencoder fitted to the learned stories, and the shot networks trained on them."""
    bars, data = TrainBars(), learned_data(out)
    say_if_earlier(out / "autoencoder" / "clips" / "result")
    with bars.shown():
        settings = fit_settings(_STILLS, _CLIPS)
        start = fit_autoencoder(untrained(out), data, out / "autoencoder", settings, bars.step).checkpoint
    loop = {"steps": _SHOTS, "batch_size": 8, "micro_batch": 8}
    recipe = recipe_of("shot", loop, game=GAME, model=start.config.model_dump())
    return learn("shot", out / "shots", data, start, recipe, out / "features").after


def _recipe(shots: Checkpoint, seed: int) -> Recipe:
    """Return the recipe of phases b and c."""
    adapt = {"loop": {"steps": _ADAPT, "batch_size": 8, "micro_batch": 8, "seed": seed, "save_every": 1000}}
    validation = {"clips": _MEASURED_CLIPS, "games": 0}
    loop = {**LOOP, "steps": _GAME, "seed": seed}
    return recipe_of("game", loop, game=GAME, adapt=adapt, model=shots.config.model_dump(), validation=validation)


def _on_played(out: Path, game: Learned) -> Learned:
    """Return training with the played stories to measure on, and their rolled-out predictions by its game model."""
    names = (*FROZEN, "shot_tokens", "predictions")
    split = encoded(out / "played", played_data(out), game.after, game.recipe, names, rollout=True)
    return replace(game, split=split)
