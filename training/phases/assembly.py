"""Factories of the phases: networks of a checkpoint, their trainable parameters, and examples of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.diffusion import Guidance, timesteps_of
from models.game_model import GameModel, make_trainable, mistral_of
from models.prompt_batch import FLEX_BLOCK, pack_attention
from models.shot_decoder import (
    ShotDecoder,
    merge_lora,
    unfreeze_for_adaptation,
    unfreeze_for_joint,
    unfreeze_for_warm_up,
)
from models.shot_encoder import ShotEncoder
from training.compiling import compiles
from training.config import Recipe
from training.data.feature_cache import FeatureCache, storage_dtype
from training.data.mixture import by_dataset
from training.data.order import part_seed
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import Windows
from training.optimizer import Pace
from training.phases.distill import DistillExamples, DistillPhase
from training.phases.distill_networks import FewStepNetworks, FewStepShots, GuideNetworks, critic_of
from training.phases.game import GameExamples, GamePhase, GameTraining
from training.phases.judge import Judge
from training.phases.shot import NoisedShots, ShotExamples, ShotNetworks, ShotPhase
from training.processes import frozen_dtype, training_device
from training.recipes import PhaseName


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
    shape, stored = config.shot_encoder, storage_dtype(config)
    absent = {
        "text": torch.zeros(shape.text_tokens, shape.text_width, dtype=stored),
        "patches": torch.zeros(shape.image_tokens, shape.image_width, dtype=stored),
    }
    loop = recipe.shot.warm_up if part == "warm-up" else recipe.shot.joint
    continues = config.shot_decoder.continues
    return ShotPhase(
        part,
        shot_networks(part, recipe, config, decoder, encoder),
        by_dataset(
            train.catalog,
            lambda turns, number: ShotExamples(
                turns,
                train.cache,
                absent,
                dropout=recipe.shot.dropout,
                seed=part_seed(loop.seed, number),
                continues=continues,
            ),
        ),
        ShotExamples(train.catalog.turns, train.cache, absent, continues=continues),
        ShotExamples(val.catalog.turns if val else (), (val or train).cache, absent, continues=continues),
        recipe.validation,
        checkpoint,
        config,
        part == "joint" and _trains_base(recipe, config),
    )


def game_phase(
    recipe: Recipe, checkpoint: Checkpoint, config: ModelConfig, train: SplitData, val: SplitData | None
) -> GamePhase:
    """Return phase b; `train` and `val` have the feature shot tokens, otherwise as `shot_phase`."""
    model = checkpoint.game_model("cpu", frozen_dtype(recipe.game.precision), torch.float32)
    tokenizer, settings, seed = checkpoint.tokenizer(), recipe.game.windows, recipe.game.loop.seed
    held_out = Windows(val.catalog.turns if val else (), settings)

    def examples(turns: Sequence[RecordedTurn], seed: int) -> GameExamples:
        return GameExamples(Windows(turns, settings, seed), train.cache, tokenizer, config, recipe.game.free_text)

    device = training_device()
    return GamePhase(
        "game",
        game_training(recipe, model, device),
        by_dataset(train.catalog, lambda turns, number: examples(turns, part_seed(seed, number))),
        examples(train.catalog.turns, seed),
        GameExamples(held_out, (val or train).cache, tokenizer, config),
        recipe.validation,
        checkpoint,
        config,
        multiple=FLEX_BLOCK if _packs(recipe, device) else 1,
    )


def adapt_phase(
    recipe: Recipe, checkpoint: Checkpoint, config: ModelConfig, train: SplitData, val: SplitData | None
) -> ShotPhase:
    """Return phase c; `train` and `val` have the features latents and predictions, otherwise as `shot_phase`."""
    decoder = checkpoint.shot_decoder("cpu", frozen_dtype(recipe.adapt.precision), torch.float32)
    with torch.no_grad():
        absent = {"predictions": checkpoint.shot_encoder("cpu", torch.float32).unconditional(1)[0]}
    settings, continues = recipe.adapt, config.shot_decoder.continues
    predicted, held_out = (_instructed(split.catalog.turns) if split else [] for split in (train, val))
    return ShotPhase(
        "adapt",
        shot_networks("adapt", recipe, config, decoder, None),
        by_dataset(
            train.catalog,
            lambda turns, number: ShotExamples(
                _instructed(turns),
                train.cache,
                absent,
                dropout=settings.dropout,
                seed=part_seed(settings.loop.seed, number),
                continues=continues,
            ),
        ),
        ShotExamples(predicted, train.cache, absent, continues=continues),
        ShotExamples(held_out, (val or train).cache, absent, continues=continues),
        recipe.validation,
        checkpoint,
        config,
    )


def guide_phase(
    recipe: Recipe, checkpoint: Checkpoint, config: ModelConfig, train: SplitData, val: SplitData | None
) -> DistillPhase:
    """Return the first part of phase d; arguments as in `adapt_phase`."""
    teacher, student, absent_LD = _pair(recipe, checkpoint)
    shots = partial(_predicted, config, absent_LD)
    seed = recipe.distill.guide.seed
    held_out = shots(val.catalog.turns if val else (), (val or train).cache)
    return DistillPhase(
        "guide",
        guide_networks(recipe, checkpoint.config, teacher, student, absent_LD),
        by_dataset(train.catalog, lambda turns, number: shots(turns, train.cache, part_seed(seed, number))),
        held_out if len(held_out) else shots(train.catalog.turns, train.cache),
        held_out,
        recipe.validation,
        checkpoint,
        config,
        NoisedShots,
    )


def distill_phase(
    recipe: Recipe, checkpoint: Checkpoint, config: ModelConfig, train: SplitData, val: SplitData | None
) -> DistillPhase:
    """Return the second part of phase d; arguments as in `adapt_phase`."""
    teacher, student, absent_LD = _pair(recipe, checkpoint)
    shots, settings = partial(_predicted, config, absent_LD), recipe.distill

    def examples(turns: Sequence[RecordedTurn], number: int) -> DistillExamples:
        return DistillExamples(shots(turns, train.cache, part_seed(settings.loop.seed, number)), settings)

    held_out = shots(val.catalog.turns if val else (), (val or train).cache)
    return DistillPhase(
        "distill",
        few_step_networks(recipe, checkpoint.config, teacher, student),
        by_dataset(train.catalog, examples),
        held_out if len(held_out) else shots(train.catalog.turns, train.cache),
        DistillExamples(held_out, settings),
        recipe.validation,
        checkpoint,
        config,
        FewStepShots,
    )


def _pair(recipe: Recipe, checkpoint: Checkpoint) -> tuple[ShotDecoder, ShotDecoder, torch.Tensor]:
    """Return teacher and student of distillation, both a checkpoint's shot decoder, and its unconditional tokens."""
    frozen = frozen_dtype(recipe.distill.precision)
    with torch.no_grad():
        absent_LD = checkpoint.shot_encoder("cpu", torch.float32).unconditional(1)[0]
    return checkpoint.shot_decoder("cpu", frozen), checkpoint.shot_decoder("cpu", frozen, torch.float32), absent_LD


def _predicted(
    config: ModelConfig, absent_LD: torch.Tensor, turns: Iterable[RecordedTurn], cache: FeatureCache, seed: int = 0
) -> ShotExamples:
    """Return shots with the game model's predictions as their only condition, which is never dropped."""
    continues = config.shot_decoder.continues
    return ShotExamples(_instructed(turns), cache, {"predictions": absent_LD}, seed=seed, continues=continues)


def guide_networks(
    recipe: Recipe, config: ModelConfig, teacher: ShotDecoder, student: ShotDecoder, absent_LD: torch.Tensor
) -> GuideNetworks:
    """Return the networks of the first part of phase d.

    Args:
        config: the teacher's.
        absent_LD: shot tokens of the unconditional prediction.
    """
    own = config.sampling
    guidance = Guidance(config.conventions.guidance, recipe.distill.guidance or own.guidance, own.guided)
    _prepare_pair(recipe, config, teacher, student)
    motion_scope = config.shot_decoder.motion_scope
    return GuideNetworks(teacher, student, absent_LD, guidance, own.steps, motion_scope=motion_scope)


def few_step_networks(
    recipe: Recipe, config: ModelConfig, teacher: ShotDecoder, student: ShotDecoder
) -> FewStepNetworks:
    """Return the networks of the second part of phase d; arguments as in `guide_networks`."""
    settings, shot = recipe.distill, config.shot_decoder
    _prepare_pair(recipe, config, teacher, student)
    critic = critic_of(teacher, shot, settings.critic_rank, settings.loop.seed)
    if settings.gradient_checkpointing:
        critic.enable_gradient_checkpointing()
    paces = {"student": Pace(every=settings.generator_every), "critic": Pace(settings.critic_rate)}
    judge = Judge(teacher, settings.loop.seed) if settings.adversarial else None
    if judge:
        paces["judge"] = paces["critic"]
    few = teacher, critic, student, timesteps_of(settings.denoising_steps), paces
    return FewStepNetworks(*few, judge, settings.adversarial, motion_scope=shot.motion_scope)


def _prepare_pair(recipe: Recipe, config: ModelConfig, teacher: ShotDecoder, student: ShotDecoder) -> None:
    """Merge and freeze the teacher; of the student, require a gradient of the parameters that are trained."""
    merge_lora(teacher)
    teacher.requires_grad_(False)
    motion_scope = config.shot_decoder.motion_scope
    unfreeze_for_adaptation(student, whole="transformer" in config.whole, motion_scope=motion_scope)
    if recipe.distill.gradient_checkpointing:
        student.enable_gradient_checkpointing()


def shot_networks(
    part: PhaseName, recipe: Recipe, config: ModelConfig, decoder: ShotDecoder, encoder: ShotEncoder | None
) -> ShotNetworks:
    """Return the networks of phase a or c. Only the parameters that `part` trains require a gradient.

    Args:
        encoder: None in adaptation.
    """
    motion_scope = config.shot_decoder.motion_scope
    if encoder is None:
        unfreeze_for_adaptation(decoder, whole="transformer" in config.whole, motion_scope=motion_scope)
    elif part == "warm-up":
        unfreeze_for_warm_up(encoder, decoder, motion_scope=motion_scope)
    else:
        unfreeze_for_joint(encoder, decoder, whole=_trains_base(recipe, config), motion_scope=motion_scope)
    if (recipe.shot if encoder else recipe.adapt).gradient_checkpointing:
        decoder.enable_gradient_checkpointing()
    return ShotNetworks(decoder, encoder, motion_scope=motion_scope)


def game_training(recipe: Recipe, model: GameModel, device: torch.device) -> GameTraining:
    """Return the network of phase b. Only the parameters that it trains require a gradient."""
    make_trainable(model.language_model)
    for resampler in (model.input_resampler, model.output_resampler):
        resampler.requires_grad_(True)
    settings, mistral = recipe.game, mistral_of(model.language_model)
    if settings.gradient_checkpointing:
        mistral.activation_checkpointing_enable({"use_reentrant": False})
    if _packs(recipe, device):
        pack_attention(mistral.config)
    return GameTraining(model, settings.alpha, settings.beta, most_turns=settings.windows.most_turns)


def _packs(recipe: Recipe, device: torch.device) -> bool:
    """Return whether packed windows are read by FlexAttention."""
    return recipe.game.windows.packed and compiles(recipe.game.loop, device)


def _trains_base(recipe: Recipe, config: ModelConfig) -> bool:
    """Return whether joint training changes the base of the shot decoder."""
    return recipe.shot.trained == "whole" or "transformer" in config.whole


def _instructed(turns: Iterable[RecordedTurn]) -> list[RecordedTurn]:
    """Return the turns that the game model has predicted: with an instruction, and in a window (`by_windows`)."""
    return [turn for turn in turns if turn.instruction and not turn.sample.overlap_seconds]
