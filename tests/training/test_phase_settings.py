"""Ingredients of a phase: the part of the recipe that decides about its result."""

from __future__ import annotations

from typing import Any

import pytest

from training.config import Recipe
from training.recipes import PHASES, ingredients_of, merged, tiny, without_steps


def changed(**changes: Any) -> list[str]:
    """Phases that are other ones by a change of the recipe."""
    before, after = tiny(), Recipe.model_validate(merged(tiny().model_dump(), changes))
    return [phase for phase in PHASES if ingredients_of(before, phase) != ingredients_of(after, phase)]


@pytest.mark.parametrize(
    ("changes", "phases"),
    [
        ({"shot": {"warm_up": {"learning_rate": 1e-4}}}, ["warm-up"]),
        ({"shot": {"joint": {"learning_rate": 1e-4}}}, ["joint"]),
        ({"shot": {"dropout": 0.3}}, ["warm-up", "joint"]),
        ({"shot": {"joint": {"save_every": 7, "loader_workers": 2}}}, []),
        ({"game": {"windows": {"most_gap": 2}}}, ["game"]),
        ({"game": {"history_noise": 0.5}}, ["game"]),
        ({"adapt": {"predictions": "rollout"}}, ["adapt"]),
        ({"features": {"tiled": True}}, ["warm-up", "joint", "adapt"]),  # these are trained on other latents
        ({"looks": {"clips": 3}}, []),
    ],
)
def test_a_phase_is_another_by_the_settings_that_its_result_depends_on(
    changes: dict[str, Any], phases: list[str]
) -> None:
    assert changed(**changes) == phases


def test_steps_alone_make_no_other_phase() -> None:
    def note(**loop: Any) -> dict[str, Any]:
        recipe = Recipe.model_validate(merged(tiny().model_dump(), {"game": {"loop": loop}}))
        return without_steps({"data": "steps", "recipe": ingredients_of(recipe, "game")})

    assert note(steps=5) == note(steps=6)
    assert note(steps=5) != note(steps=5, seed=1)
