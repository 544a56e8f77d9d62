"""Training recipes and ablations: functions that return a complete `Recipe`, of which a TOML file overrides keys.

    tiny          two CPU cores, minutes
    mini          two CPU cores, hours: a small world of a few thousand clips, all networks trained whole
    full          the published model and the paper's numbers, on GPUs of 80 GB
    paper         full without its departures from the paper and the released code
    card24        the same on one GPU of 24 GB: activation checkpointing, gradient accumulation
    one-film      full with a tenth of its steps, for the paper's ablations on about 2,000 clips of one film
    random-frame, linear, addition, cross-attention                        ablations of the shot encoder
    no-warm-up, no-motion-scope, no-adaptation, cosine-loss, no-history    ablations of training

Every ablation changes one thing; `ablation("linear", tiny())` is the tiny recipe with that change. A phase of a run
depends on a part of its recipe (`ingredients_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import ValidationError

from models.config import full_config, mini_config, tiny_config
from pipeline.core.errors import UserError
from pipeline.core.records import faults_of
from pipeline.core.settings import Settings
from pipeline.core.toml import read_toml
from training.config import (
    AdaptPhaseSettings,
    BaselineSettings,
    DistillPhaseSettings,
    FitSettings,
    GamePhaseSettings,
    LoopSettings,
    Recipe,
    ShotPhaseSettings,
    ValidationSettings,
    WindowSettings,
)

_OF_VIDEO = {"betas": (0.9, 0.95), "weight_decay": 1e-4}
"""AdamW of diffusers' training script of CogVideoX, examples/cogvideo/train_cogvideox_lora.py."""
_OF_FLUX = {"weight_decay": 1e-4}
"""AdamW of diffusers' training script of FLUX, examples/dreambooth/train_dreambooth_lora_flux.py."""
_OF_LANGUAGE = {"betas": (0.9, 0.98), "epsilon": 1e-6, "weight_decay": 0.05, "minimum_rate": 0.05}
"""AdamW of Divot, the parent of AnimeGamer's game model: TencentARC/Divot, scripts/train_Divot_sft_gen.sh."""
_OF_DMD = {"betas": (0.0, 0.999), "schedule": "constant", "rate_warm_up": 0}
"""AdamW of DMD2 without its average of gradients, as NVlabs/FastGen has it."""
PhaseName = Literal["warm-up", "joint", "game", "adapt", "guide", "distill"]
PHASES: tuple[PhaseName, ...] = ("warm-up", "joint", "game", "adapt", "guide", "distill")
COMMANDS: Mapping[PhaseName, str] = {
    **{"warm-up": "shot", "joint": "shot", "game": "game", "adapt": "adapt"},
    **{"guide": "distill", "distill": "distill"},
}
"""Part of `animegamer train` that runs each phase."""
ALL: tuple[PhaseName, ...] = ("warm-up", "joint", "game", "adapt")
"""Phases of the paper, which `animegamer train all` runs."""
ADJUSTABLE_SETTINGS = {
    *("micro_batch", "ema_on_cpu", "loader_workers"),
    *("save_every", "save_minutes", "keep", "snapshot_every", "validate_every", "validate_minutes"),
}
"""Loop settings that may change on resume: the result is the same up to rounding."""
_LOOPS = ("loop", "warm_up", "joint", "guide")
"""Keys of the loops in the section of a phase."""
ON_TILES = {"tiled": True}
"""Ingredient of a phase whose latents have the slight seams of tiles."""
_OF_OTHER_PART: Mapping[str, tuple[str, ...]] = {
    "warm-up": ("joint",),
    "joint": ("warm_up",),
    "guide": ("loop", "denoising_steps", "generator_every", "critic_rate", "critic_rank", "adversarial"),
    "distill": ("guide", "guidance"),
}
"""Keys of a section that another phase alone depends on."""


def full() -> Recipe:
    """The paper's steps and learning rates, and our choices for the rest.

    A step has one clip for each of the paper's 24 GPUs. The released configuration of the game model
    (dataset_5_turn.yaml) has 16 windows for each, 384 targets; a step here has 80 packed windows, 400 targets. Each
    network has the optimizer of the code that it comes from.

    It departs from the paper and the released code on purpose, and `paper` undoes the first five:

    - packed windows: the same loss at half the cost of a target;
    - half of the instructions in other words: players type sentences;
    - a moving average of the weights: diffusion models are usually sampled from one;
    - adapters of the shot decoder scaled by 1, not by 1/64: at the same learning rate 1/64 hardly moves them, and
      diffusers advises alpha = rank;
    - GFC in batches of 24, not one example for each of the paper's 8 GPUs: then all networks share a batch size;
    - conditions left out of a tenth of the examples of every phase: guidance needs the unconditional shot;
    - cross-entropy at the four slots of the state, not over about 13 labelled tokens: the tags between them are fixed,
      so states weigh three times as much.
    """
    common = {"batch_size": 24, "rate_warm_up": 500, "ema_decay": 0.9999, "save_every": 500, "validate_every": 2000}
    common |= {"loader_workers": 2, "save_minutes": 30.0}
    video, flux, language = ({**common, **optimizer} for optimizer in (_OF_VIDEO, _OF_FLUX, _OF_LANGUAGE))
    shots = {**video, "micro_batch": 3, "compile": True}
    windows = {**language, "batch_size": 80, "micro_batch": 2, "compile": True}
    return Recipe(
        model=full_config(),
        shot=ShotPhaseSettings(
            warm_up=LoopSettings(steps=10_000, learning_rate=2e-4, **shots),
            joint=LoopSettings(steps=80_000, learning_rate=2e-4, **shots),
            precision="fp16",
        ),
        game=GamePhaseSettings(
            loop=LoopSettings(steps=15_000, learning_rate=5e-5, **windows),
            windows=WindowSettings(packed=True),
            precision="bf16",
        ),
        adapt=AdaptPhaseSettings(loop=LoopSettings(steps=10_000, learning_rate=5e-5, **shots), precision="fp16"),
        # batches of 64, because 32 are reported to give mosaics; none of it has been run at this size
        distill=DistillPhaseSettings(
            guide=LoopSettings(steps=3000, learning_rate=5e-5, **shots),
            loop=LoopSettings(
                steps=1000,
                learning_rate=5e-5,
                **{**shots, **_OF_DMD, "batch_size": 64, "micro_batch": 1, "weight_decay": 0.01, "ema_decay": 0.99}
                | {"validate_every": 200, "snapshot_every": 200},  # the best step is seldom the last
            ),
            precision="fp16",
        ),
        gc=BaselineSettings(loop=LoopSettings(steps=80_000, learning_rate=2e-4, **video), precision="fp16"),
        gfc=BaselineSettings(loop=LoopSettings(steps=200_000, learning_rate=1e-4, **flux), precision="bf16"),
    )


def paper() -> Recipe:
    """`full` without its departures, except in the loss: to compare with the paper before improving on it."""
    recipe = full().model_dump()
    recipe["model"]["shot_decoder"]["lora_alpha"] = 1
    recipe["game"] |= {"free_text": 0.0, "windows": WindowSettings().model_dump()}
    recipe["game"]["loop"] |= {"batch_size": 384, "micro_batch": 4}
    recipe["gfc"]["loop"]["batch_size"] = 8
    for phase in ("shot", "game", "adapt", "gc", "gfc"):
        for loop in _loops_of(recipe[phase]):
            loop["ema_decay"] = 0.0
    return Recipe.model_validate(recipe)


def card24() -> Recipe:
    """`full` for one GPU of 24 GB: it computes all examples of a step alone, with moving averages in main memory."""
    recipe = full().model_dump()
    for phase in ("shot", "game", "adapt", "distill", "gc", "gfc"):
        recipe[phase]["gradient_checkpointing"] = True
        for loop in _loops_of(recipe[phase]):
            loop |= {"ema_on_cpu": True, "micro_batch": 1}
    return Recipe.model_validate(recipe)


def one_film() -> Recipe:
    """`full` for the paper's ablation set: a film of 2,000 clips, a tenth of the whole data.

    The paper gives no number of steps. A tenth of the steps shows every clip about as often as `full` does.
    """
    recipe = full().model_dump()
    for phase in ("shot", "game", "adapt", "distill", "gc", "gfc"):
        for loop in _loops_of(recipe[phase]):
            loop |= {key: loop[key] // 10 for key in ("steps", "rate_warm_up", "validate_every", "snapshot_every")}
    return Recipe.model_validate(recipe)


def _loops_of(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [section[name] for name in _LOOPS if name in section]


def tiny() -> Recipe:
    """A recipe for two CPU cores and a few dozen clips, which it overfits."""
    common = {"batch_size": 4, "micro_batch": 4, "rate_warm_up": 20, "save_every": 100, "validate_every": 200}
    return Recipe(
        model=tiny_config(),
        autoencoder=FitSettings(),
        shot=ShotPhaseSettings(
            warm_up=LoopSettings(steps=50, learning_rate=2e-3, **common),
            joint=LoopSettings(steps=700, learning_rate=2e-3, **{**common, "validate_every": 350}),
            trained="whole",
        ),
        game=GamePhaseSettings(loop=LoopSettings(steps=200, learning_rate=2e-3, **common)),
        adapt=AdaptPhaseSettings(loop=LoopSettings(steps=100, learning_rate=5e-4, **common)),
        distill=DistillPhaseSettings(
            guide=LoopSettings(steps=100, learning_rate=5e-4, **common),
            loop=LoopSettings(steps=100, learning_rate=1e-4, **{**common, **_OF_DMD}),
            critic_rank=8,
        ),
        gc=BaselineSettings(loop=LoopSettings(steps=200, learning_rate=2e-3, **common)),
        gfc=BaselineSettings(loop=LoopSettings(steps=200, learning_rate=2e-3, **common)),
        validation=ValidationSettings(clips=8, pictures=3, denoising_steps=20, guidance=1.5),
    )


def mini() -> Recipe:
    """A recipe for two CPU cores and a small world of a few thousand clips, without any pretrained weights.

    Muon trains the matrices. In joint training, 500 steps give the held-out loss of 800 steps of AdamW, and 1,000 steps
    the loss of 2,000. A packed window of the game model costs half as much for a target as windows of one target do.
    """
    common = {"batch_size": 8, "rate_warm_up": 100, "ema_decay": 0.999, "save_every": 250, "validate_every": 1000}
    common["micro_batch"] = 4  # so that two processes can share a batch
    fit: dict[str, Any] = {"optimizer": "muon", "rate_warm_up": 100, "weight_decay": 0.0, "ema_decay": 0.999}
    fit["validate_every"] = 1000
    return Recipe(
        model=mini_config(),
        autoencoder=FitSettings(
            stills=LoopSettings(steps=1000, learning_rate=2e-3, batch_size=4, micro_batch=4, **fit),
            clips=LoopSettings(steps=8333, learning_rate=2e-3, batch_size=2, micro_batch=2, **fit),
            crop=1.0,
            changes=1.0,
            precision="auto",
            most_clips=2000,
            measured=16,
        ),
        shot=ShotPhaseSettings(
            warm_up=LoopSettings(steps=200, learning_rate=1e-3, **common),
            joint=LoopSettings(steps=10_000, learning_rate=4e-3, optimizer="muon", **common),
            precision="auto",
        ),
        game=GamePhaseSettings(
            loop=LoopSettings(
                steps=6000, learning_rate=2e-3, optimizer="muon", **{**common, "batch_size": 4, "micro_batch": 2}
            ),
            windows=WindowSettings(packed=True),
            precision="auto",
        ),
        adapt=AdaptPhaseSettings(
            loop=LoopSettings(
                steps=6000, learning_rate=4e-3, optimizer="muon", **{**common, "batch_size": 16, "micro_batch": 8}
            ),
            predictions="rollout",
            precision="auto",
        ),
        # rates and steps are not tuned
        distill=DistillPhaseSettings(
            guide=LoopSettings(steps=1000, learning_rate=1e-3, optimizer="muon", **common),
            loop=LoopSettings(
                steps=1000,
                learning_rate=1e-4,
                **{**common, **_OF_DMD, "batch_size": 16, "ema_decay": 0.99}
                | {"validate_every": 200, "snapshot_every": 200},
            ),
            precision="auto",
        ),
        # as many steps as the shot decoder has in its three phases
        gc=BaselineSettings(
            loop=LoopSettings(steps=18_200, learning_rate=4e-3, optimizer="muon", **common), precision="auto"
        ),
        gfc=BaselineSettings(loop=LoopSettings(steps=2000, learning_rate=1e-3, **common)),
        validation=ValidationSettings(clips=64, pictures=4, denoising_steps=10, guidance=1.0),
    )


RECIPES: Mapping[str, Callable[[], Recipe]] = {
    "tiny": tiny,
    "mini": mini,
    "full": full,
    "paper": paper,
    "card24": card24,
    "one-film": one_film,
}
_CHANGES: Mapping[str, dict[str, Any]] = {
    "random-frame": {"shot": {"frame": "random"}},
    "linear": {"model": {"shot_encoder": {"variant": "linear"}}},
    "addition": {"model": {"shot_encoder": {"variant": "addition"}}},
    "cross-attention": {"model": {"shot_encoder": {"variant": "cross_attention"}}},
    "no-warm-up": {"shot": {"warm_up": {"steps": 0}}},
    "no-motion-scope": {"model": {"shot_decoder": {"motion_scope": False}}},
    "no-adaptation": {"adapt": {"loop": {"steps": 0}}},
    "cosine-loss": {"game": {"alpha": 0.5, "beta": 0.5}},
    "no-history": {"game": {"windows": {"most_turns": 1}}, "model": {"game_model": {"window_turns": 1}}},
}
ABLATIONS = tuple(_CHANGES)


def ablation(name: str, recipe: Recipe) -> Recipe:
    """Return a recipe with the single change of an ablation. UserError if there is no such ablation."""
    if name not in _CHANGES:
        raise UserError(f"no ablation {name!r}: choose one of {', '.join(ABLATIONS)}")
    changes = _CHANGES[name]
    if name == "no-history" and recipe.game.windows.packed:  # as many targets a step as before
        targets = recipe.game.loop.batch_size * recipe.game.windows.most_turns
        changes = merged(changes, {"game": {"windows": {"packed": False}, "loop": {"batch_size": targets}}})
    return Recipe.model_validate(merged(recipe.model_dump(), changes))


def read_recipe(name: str, ablated: str | None = None, path: Path | None = None) -> Recipe:
    """Return a recipe by name, with an ablation's change and then the overrides of a TOML file.

    Raises:
        UserError: there is no such recipe, or the file cannot be read, has invalid keys or values, or undoes the
            ablation's change.
    """
    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}: choose one of {', '.join(RECIPES)}")
    recipe = RECIPES[name]()
    if ablated:
        recipe = ablation(ablated, recipe)
    if not path:
        return recipe
    changed = changed_recipe(recipe, path)
    if ablated and changed != ablation(ablated, changed):
        raise UserError(f"{path} undoes the ablation {ablated}: remove its keys {_CHANGES[ablated]} from the file")
    return changed


def changed_recipe(recipe: Recipe, path: Path) -> Recipe:
    """Return a recipe with the overrides of a TOML file.

    Raises:
        UserError: the file cannot be read or has invalid keys or values.
    """
    try:
        return Recipe.model_validate(merged(recipe.model_dump(), read_toml(path)))
    except FileNotFoundError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        faults = "; ".join([faults_of(error), *_meant(error, recipe.model_dump())])
        raise UserError(f"{path} is not valid ({faults}); see all keys with `animegamer recipe`") from error


def _meant(error: ValidationError, whole: Mapping[str, Any]) -> Iterator[str]:
    """Yield a question for each misspelt key that resembles a key of its table."""
    for fault in error.errors()[:5]:
        if fault["type"] == "extra_forbidden":
            *tables, key = map(str, fault["loc"])
            known: Mapping[str, Any] = reduce(lambda table, name: table.get(name) or {}, tables, whole)
            for close in get_close_matches(key, known.keys() - {key}, n=1, cutoff=0.75):
                yield f"did you mean {'.'.join([*tables, close])}?"


def merged(whole: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changes into nested tables key by key; values that are not tables are replaced."""
    result = dict(whole)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if nested else value
    return result


def loop_of(recipe: Recipe, phase: str) -> LoopSettings:
    """Return the settings of a phase's training loop."""
    loops = (recipe.shot.warm_up, recipe.shot.joint, recipe.game.loop, recipe.adapt.loop)
    distill = (recipe.distill.guide, recipe.distill.loop)
    return (*loops, *distill)[PHASES.index(cast(PhaseName, phase))]


def ingredients_of(recipe: Recipe, phase: str) -> dict[str, Any]:
    """Return the part of the recipe that a phase depends on, without the model: the checkpoint has that."""
    sections: Mapping[str, Settings] = {
        **{"warm-up": recipe.shot, "joint": recipe.shot, "adapt": recipe.adapt},
        **{"guide": recipe.distill, "distill": recipe.distill},
    }
    section = sections.get(phase, recipe.game)
    loops = dict.fromkeys(_LOOPS, dict.fromkeys(ADJUSTABLE_SETTINGS, True))
    left_out: dict[str, object] = {**loops, "gradient_checkpointing": True}
    left_out |= dict.fromkeys(_OF_OTHER_PART.get(phase, ()), True)
    others: dict[str, Any] = dict(ON_TILES) if recipe.features.tiled and phase in sections else {}
    if section is recipe.distill and recipe.adapt.predictions != "own":
        others["predictions"] = recipe.adapt.predictions
    return {**section.model_dump(mode="json", exclude=merged(section.unset_later_keys(), left_out)), **others}


def without_steps(made_from: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ingredients of a phase with the number of its steps left out, which may change in the same folder."""
    recipe = made_from["recipe"]
    loops = {name: _without(value) for name, value in recipe.items() if isinstance(value, Mapping)}
    return {**made_from, "recipe": {**_without(recipe), **loops}}


def _without(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "steps"}
