"""Factories of the phases: networks of a checkpoint, their trainable parameters, and examples of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.game_model import make_trainable, mistral_of
from models.prompt_batch import FLEX_BLOCK, pack_attention
from models.shot_decoder import ShotDecoder, unfreeze_for_adaptation, unfreeze_for_joint, unfreeze_for_warm_up
from training.compiling import compiles
from training.config import Recipe
from training.data.feature_cache import FeatureCache
from training.data.mixture import by_dataset
from training.data.order import part_seed
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import History, Windows
from training.phases.game import GameExamples, GamePhase, GameTraining
from training.phases.shot import ShotExamples, ShotNetworks, ShotPhase
from training.processes import frozen_dtype, training_device


@dataclass(frozen=True)
class SplitData:
    """Turns of a split and their features."""

    catalog: Catalog
    cache: FeatureCache


def shot_phase(
    part: Literal["warm-up", "joint"],
    recipe: Recipe,
    checkpoint: Checkpoint,
    config: ModelConfig,
    train: SplitData,
    val: SplitData | None,
) -> ShotPhase:
    """Return the warm-up or the joint training of phase a.

    Args:
        config: configuration of the resulting checkpoint.
        train: training data with the features latents, patches and text.
    """
    frozen = frozen_dtype(recipe.shot.precision)
    if recipe.shot.trained == "whole":
        frozen = torch.float32
    decoder = checkpoint.shot_decoder("cpu", frozen, torch.float32)
    encoder = checkpoint.shot_encoder("cpu", torch.float32)
    motion_scope = config.shot_decoder.motion_scope
    whole = part == "joint" and (recipe.shot.trained == "whole" or "transformer" in config.whole)
    if part == "warm-up":
        unfreeze_for_warm_up(encoder, decoder, motion_scope=motion_scope)
    else:
        unfreeze_for_joint(encoder, decoder, whole=whole, motion_scope=motion_scope)
    _save_memory(decoder, wanted=recipe.shot.gradient_checkpointing)
    shape = config.shot_encoder
    absent = {
        "text": torch.zeros(shape.text_tokens, shape.text_width),
        "patches": torch.zeros(shape.image_tokens, shape.image_width),
    }
    loop = recipe.shot.warm_up if part == "warm-up" else recipe.shot.joint
    return ShotPhase(
        part,
        ShotNetworks(decoder, encoder, motion_scope=motion_scope),
        by_dataset(
            train.catalog,
            lambda turns, number: ShotExamples(
                turns, train.cache, absent, dropout=recipe.shot.dropout, seed=part_seed(loop.seed, number)
            ),
        ),
        ShotExamples(train.catalog.turns, train.cache, absent),
        ShotExamples(val.catalog.turns if val else (), (val or train).cache, absent),
        recipe.validation,
        checkpoint,
        config,
        whole,
    )


def game_phase(
    recipe: Recipe, checkpoint: Checkpoint, config: ModelConfig, train: SplitData, val: SplitData | None
) -> GamePhase:
    """Return phase b; `train` and `val` have the feature shot tokens, otherwise as `shot_phase`."""
    model = checkpoint.game_model("cpu", frozen_dtype(recipe.game.precision), torch.float32)
    make_trainable(model.language_model)
    for resampler in (model.input_resampler, model.output_resampler):
        resampler.requires_grad_(True)
    if recipe.game.gradient_checkpointing:
        mistral_of(model.language_model).activation_checkpointing_enable({"use_reentrant": False})
    tokenizer, settings, seed = checkpoint.tokenizer(), recipe.game.windows, recipe.game.loop.seed
    held_out = Windows(val.catalog.turns if val else (), settings)
    history = History(recipe.game.history_noise, seed)

    def examples(turns: Sequence[RecordedTurn], seed: int) -> GameExamples:
        windows, past = Windows(turns, settings, seed), replace(history, seed=seed)
        return GameExamples(windows, train.cache, tokenizer, config, recipe.game.free_text, past)

    weights, most_turns = (recipe.game.alpha, recipe.game.beta), settings.most_turns
    network = GameTraining(model, *weights, noisy=history.noise > 0, most_turns=most_turns)
    packs = settings.packed and compiles(recipe.game.loop, training_device())
    if packs:
        pack_attention(mistral_of(model.language_model).config)
    return GamePhase(
        "game",
        network,
        by_dataset(train.catalog, lambda turns, number: examples(turns, part_seed(seed, number))),
        examples(train.catalog.turns, seed),
        GameExamples(held_out, (val or train).cache, tokenizer, config),
        recipe.validation,
        checkpoint,
        config,
        multiple=FLEX_BLOCK if packs else 1,
    )


def adapt_phase(
    recipe: Recipe, checkpoint: Checkpoint, config: ModelConfig, train: SplitData, val: SplitData | None
) -> ShotPhase:
    """Return phase c; `train` and `val` have the features latents and predictions, otherwise as `shot_phase`."""
    decoder = checkpoint.shot_decoder("cpu", frozen_dtype(recipe.adapt.precision), torch.float32)
    motion_scope = config.shot_decoder.motion_scope
    unfreeze_for_adaptation(decoder, whole="transformer" in config.whole, motion_scope=motion_scope)
    _save_memory(decoder, wanted=recipe.adapt.gradient_checkpointing)
    with torch.no_grad():
        absent = {"predictions": checkpoint.shot_encoder("cpu", torch.float32).unconditional(1)[0]}
    settings = recipe.adapt
    predicted, held_out = (_instructed(split.catalog.turns) if split else [] for split in (train, val))
    return ShotPhase(
        "adapt",
        ShotNetworks(decoder, None, motion_scope=motion_scope),
        by_dataset(
            train.catalog,
            lambda turns, number: ShotExamples(
                _instructed(turns),
                train.cache,
                absent,
                dropout=settings.dropout,
                seed=part_seed(settings.loop.seed, number),
            ),
        ),
        ShotExamples(predicted, train.cache, absent),
        ShotExamples(held_out, (val or train).cache, absent),
        recipe.validation,
        checkpoint,
        config,
    )


def _instructed(turns: Iterable[RecordedTurn]) -> list[RecordedTurn]:
    """Return the turns that the game model has predicted: with an instruction, and in a window (`by_windows`)."""
    return [turn for turn in turns if turn.instruction and not turn.sample.overlap_seconds]


def _save_memory(decoder: ShotDecoder, *, wanted: bool) -> None:
    if wanted:
        decoder.enable_gradient_checkpointing()
