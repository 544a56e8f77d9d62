"""Settings of the phases of a run: the loop of each, and the part of the recipe that its result depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from training.config import LoopSettings, Recipe
from training.recipes import merged

PhaseName = Literal["warm-up", "joint", "game", "adapt"]
PHASES: tuple[PhaseName, ...] = ("warm-up", "joint", "game", "adapt")
FORK_NOTE = "fork.json"
"""Note in the folder of a run that goes on from a saved state of another run; see `forks.py`."""
COMMANDS: Mapping[str, str] = {"warm-up": "shot", "joint": "shot", "game": "game", "adapt": "adapt"}
"""Part of `animegamer train` that runs each phase."""
ADJUSTABLE_SETTINGS = {
    *("micro_batch", "ema_on_cpu", "loader_workers"),
    *("save_every", "keep", "snapshot_every", "validate_every"),
}
"""Loop settings that may change on resume: the result is the same up to rounding."""
ON_TILES = {"tiled": True}
"""Ingredient of a phase whose latents have the slight seams of tiles."""


def loop_of(recipe: Recipe, phase: str) -> LoopSettings:
    """Return the settings of a phase's training loop."""
    loops = (recipe.shot.warm_up, recipe.shot.joint, recipe.game.loop, recipe.adapt.loop)
    return loops[PHASES.index(cast(PhaseName, phase))]


def ingredients_of(recipe: Recipe, phase: str) -> dict[str, Any]:
    """Return the part of the recipe that a phase depends on, without the model: the checkpoint has that."""
    sections = {"adapt": recipe.adapt, "warm-up": recipe.shot, "joint": recipe.shot}
    section = sections.get(phase, recipe.game)
    loops = dict.fromkeys(("loop", "warm_up", "joint"), dict.fromkeys(ADJUSTABLE_SETTINGS, True))
    other = {"warm-up": "joint", "joint": "warm_up"}.get(phase)
    left_out: dict[str, object] = {**loops, "gradient_checkpointing": True, **({other: True} if other else {})}
    tiled = ON_TILES if recipe.features.tiled and phase in sections else {}
    return {**section.model_dump(mode="json", exclude=merged(section.unset_later_keys(), left_out)), **tiled}


def without_steps(made_from: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ingredients of a phase with the number of its steps left out, which may change in the same folder."""
    recipe = made_from["recipe"]
    loops = {name: _without(value) for name, value in recipe.items() if isinstance(value, Mapping)}
    return {**made_from, "recipe": {**_without(recipe), **loops}}


def _without(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "steps"}
