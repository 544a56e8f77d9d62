"""Recipes: complete, changed key by key, read back from their printed form, and as ingredients of phases."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from flows.train_run import Ablation, RecipeName
from pipeline.core.errors import UserError
from pipeline.core.toml import as_toml
from training.config import LoopSettings, Recipe
from training.recipes import (
    ABLATIONS,
    PHASES,
    RECIPES,
    ablation,
    full,
    ingredients_of,
    merged,
    read_recipe,
    tiny,
)


@pytest.mark.parametrize("name", RECIPES)
def test_a_printed_recipe_is_read_back(name: str) -> None:
    recipe = RECIPES[name]()
    assert Recipe.model_validate(tomllib.loads(as_toml(recipe))) == recipe


@pytest.mark.parametrize(("offered", "names"), [(RecipeName, RECIPES), (Ablation, ABLATIONS)])
def test_the_command_line_offers_all_recipes(offered: object, names: Iterable[str]) -> None:
    assert list(get_args(offered)) == list(names)


def test_the_full_recipe_is_that_of_the_paper() -> None:
    recipe = full()
    steps = (recipe.shot.warm_up.steps, recipe.shot.joint.steps, recipe.game.loop.steps, recipe.adapt.loop.steps)
    assert steps == (10_000, 80_000, 15_000, 10_000)
    rates = (recipe.shot.joint.learning_rate, recipe.game.loop.learning_rate, recipe.adapt.loop.learning_rate)
    assert rates == (2e-4, 5e-5, 5e-5)
    assert (recipe.shot.precision, recipe.game.precision) == ("fp16", "bf16")
    for loop in (recipe.shot.warm_up, recipe.shot.joint, recipe.adapt.loop, recipe.gc.loop):
        assert (loop.betas, loop.epsilon, loop.weight_decay, loop.minimum_rate) == ((0.9, 0.95), 1e-8, 1e-4, 0.0)
    loop = recipe.game.loop
    assert (loop.betas, loop.epsilon, loop.weight_decay, loop.minimum_rate) == ((0.9, 0.98), 1e-6, 0.05, 0.05)
    assert (loop.batch_size * recipe.game.windows.most_turns, recipe.shot.joint.batch_size) == (400, 24)
    alone = ablation("no-history", recipe).game
    assert (alone.loop.batch_size, alone.windows.packed) == (400, False)


def test_the_recipe_of_the_paper_has_no_departures() -> None:
    recipe = read_recipe("paper")
    game, loops = recipe.game, (recipe.shot.joint, recipe.game.loop, recipe.adapt.loop, recipe.gc.loop, recipe.gfc.loop)
    assert (game.free_text, game.windows.packed, game.loop.batch_size, recipe.gfc.loop.batch_size) == (0, False, 384, 8)
    assert recipe.model.shot_decoder.lora_alpha == 1
    assert {loop.ema_decay for loop in loops} == {0}


def test_the_recipe_of_one_film_is_full_with_a_tenth_of_the_steps() -> None:
    recipe = read_recipe("one-film")
    steps = (recipe.shot.warm_up.steps, recipe.shot.joint.steps, recipe.game.loop.steps, recipe.adapt.loop.steps)
    assert steps == (1000, 8000, 1500, 1000)
    same = {"rate_warm_up": 500, "validate_every": 2000}
    loop = recipe.shot.joint.model_copy(update={"steps": 80_000, **same})
    assert loop == full().shot.joint
    assert ablation("linear", recipe).shot == recipe.shot


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize("make", [tiny, full])
def test_every_ablation_changes_the_recipe_and_is_valid(name: str, make: type[Recipe]) -> None:
    assert ablation(name, make()) != make()


def test_a_file_changes_single_keys(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[game]\nalpha = 0.25\n[game.loop]\nsteps = 7\n")
    recipe = read_recipe("tiny", "linear", path)
    assert (recipe.game.alpha, recipe.game.loop.steps) == (0.25, 7)
    assert recipe.game.loop.learning_rate == tiny().game.loop.learning_rate
    assert recipe.model.shot_encoder.variant == "linear"


@pytest.mark.parametrize("text", ["[autoencoder]\nmost_clip = 5\n", "[autoencoder.stills]\nstps = 5\n"])
def test_a_misspelt_key_of_a_section_that_the_recipe_lacks_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UserError, match=r"is not valid \(autoencoder.*not permitted"):
        read_recipe("full", None, tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[game]\nalhpa = 1\n", "game.alhpa: Extra inputs are not permitted; did you mean game.alpha?"),
        ("[game.windws]\nmost_turns = 3\n", "did you mean game.windows?"),
        ("[shot.joint]\nlerning_rate = 1\n", "did you mean shot.joint.learning_rate?"),
        ("[validation]\ndenoising_steps = 7\n", "validation.denoising_steps: Value error, steps must divide 1000"),
        ("[game.loop]\nsteps = -1\n", "game.loop.steps"),
        ("[game.windows]\nmost_turns = 9\n", "model.game_model.window_turns = 5: reduce most_turns"),
        ("[game.loop\n", "cannot be read"),
        ("[adapt]\npredictions = 'folds'\n", "adapt.predictions"),
        ("[distill]\ndenoising_steps = 3\n", "distill.denoising_steps: Value error, steps must divide 1000"),
    ],
)
def test_invalid_values_are_named_with_their_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        read_recipe("tiny", None, path)
    assert str(path) in str(caught.value)


def test_a_file_that_undoes_an_ablation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[shot.warm_up]\nbatch_size = 2\nmicro_batch = 2\n")
    assert read_recipe("tiny", "no-warm-up", path).shot.warm_up.steps == 0
    path.write_text("[shot.warm_up]\nsteps = 50\n")
    with pytest.raises(UserError, match=r"mine\.toml undoes the ablation no-warm-up: remove its keys .*'steps': 0"):
        read_recipe("tiny", "no-warm-up", path)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UserError, match="no recipe 'huge': choose one of tiny, mini, full, paper, card24"):
        read_recipe("huge")
    with pytest.raises(UserError, match="no ablation 'none': choose one of random-frame"):
        ablation("none", tiny())


def test_later_keys_are_ingredients_only_where_they_are_set() -> None:
    unset = dict.fromkeys(LoopSettings.later_keys, True)
    recipe = tiny()
    assert recipe.gc.unset_later_keys() == {"loop": unset}
    loop = recipe.gc.loop.model_copy(update={"betas": (0.9, 0.95)})
    changed = recipe.gc.model_copy(update={"loop": loop})
    assert changed.unset_later_keys() == {"loop": {key: True for key in unset if key != "betas"}}
    assert recipe.unset_later_keys()["shot"] == {"warm_up": unset, "joint": unset}
    assert full().gc.unset_later_keys() == {"loop": dict.fromkeys(unset.keys() - {"betas", "save_minutes"}, True)}


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
        ({"shot": {"joint": {"save_every": 7, "save_minutes": 5, "loader_workers": 2}}}, []),
        ({"game": {"windows": {"most_gap": 2}}}, ["game"]),
        ({"adapt": {"predictions": "rollout"}}, ["adapt", "guide", "distill"]),
        ({"features": {"tiled": True}}, ["warm-up", "joint", "adapt", "guide", "distill"]),  # other latents
        ({"distill": {"guide": {"learning_rate": 1e-6}}}, ["guide"]),
        ({"distill": {"guidance": 3.0}}, ["guide"]),
        ({"distill": {"loop": {"learning_rate": 1e-6}, "denoising_steps": 8, "critic_rate": 2.0}}, ["distill"]),
        ({"distill": {"generator_every": 1}}, ["distill"]),
        ({"validation": {"clips": 3}}, []),
    ],
)
def test_a_phase_is_another_by_the_settings_that_its_result_depends_on(
    changes: dict[str, Any], phases: list[str]
) -> None:
    assert changed(**changes) == phases
