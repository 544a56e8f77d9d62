"""Trial of a recipe: real steps of each phase on the machine at hand, with random weights and random examples.

Optimizer, average, precision and compiled blocks are those of training. Nothing is read, so it needs neither the bases
nor a dataset; windows are as long as they can be. Loading, validation and saving come on top. Steps of `distill` are
those in which the student learns too, so its hours are too many if it learns in every fifth only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from models.config import ModelConfig
from models.frames import LATENT_CHANNELS
from models.game_model import GameModel, wrap_language_model
from models.prompt_batch import FLEX_BLOCK, TensorBatch
from models.shot_decoder import SPATIAL_COMPRESSION, ShotDecoder, add_lora, decoder_options
from models.shot_encoder import ShotEncoder
from models.tokens import MEASURED, PastTurn, State, shipped_tokenizer, write_packed_prompt, write_prompt
from models.untrained import random_base
from pipeline.core.errors import UserError
from training.config import LoopSettings, Precision, Recipe
from training.learner import Learner
from training.phases.assembly import few_step_networks, game_training, guide_networks, shot_networks
from training.phases.distill import DistillNetworks, check_unsharded
from training.phases.distill_networks import FewStepShot, FewStepShots
from training.phases.game import GameBatch, GameExample, GameTraining
from training.phases.shot import NoisedShot, NoisedShots, ShotNetworks
from training.processes import FROZEN_PRECISION, attention_for, new_accelerator, release_network, resolved
from training.recipes import COMMANDS, PhaseName, loop_of
from training.speed import peak_tflops_of

INSTRUCTION = "Character: Qiqi; Motion: slowly fly over the sea; Background: morning sky."
LOOP_KEYS: Mapping[PhaseName, str] = {
    **{"warm-up": "shot.warm_up", "joint": "shot.joint", "game": "game.loop", "adapt": "adapt.loop"},
    **{"guide": "distill.guide", "distill": "distill.loop"},
}
"""Table of the recipe with each phase's loop."""
_WARM, _TIMED = 2, 3
"""Steps that compile, select kernels and allocate moments; and steps that are timed."""


@dataclass(frozen=True)
class Trial:
    """Cost of a phase."""

    phase: PhaseName
    micro_batch: int
    """Examples in a forward pass: those wanted, or the most that fit into memory."""
    wanted: int
    """Examples in a forward pass by the recipe, at most a process's share of a batch."""
    seconds: float
    """Seconds of a step until the last backward pass."""
    update_seconds: float
    """Seconds of its clipping, update and average."""
    hours: float
    """Hours of all steps of the phase."""
    peak_gb: float | None
    """Peak memory of a GPU; None on a CPU."""
    mfu: float | None
    """See `training/speed.py`."""


def try_phase(phase: PhaseName, recipe: Recipe) -> Trial | None:
    """Run a few steps of a phase with the recipe's batch. Collective call: processes share the batch.

    Returns:
        The cost, at a smaller micro-batch if the recipe's needs too much memory; None if no example fits.

    Raises:
        UserError: the phase cannot run in this precision or sharded; or one of several processes runs out of memory in
            a step that needs the others, which wait until the launcher ends them.
    """
    if COMMANDS[phase] == "distill":
        check_unsharded()
    try:
        accelerator = new_accelerator(precision_of(phase, recipe))
    except ValueError as error:
        raise UserError(f"{phase}: {error}") from error
    with attention_for(accelerator.mixed_precision, accelerator.device):
        trial = _tried(phase, recipe, accelerator)
    release_network(accelerator)
    return trial


def _tried(phase: PhaseName, recipe: Recipe, accelerator: Accelerator) -> Trial | None:
    loop, device = loop_of(recipe, phase), accelerator.device
    share = -(-loop.batch_size // accelerator.num_processes)
    wanted, most = min(loop.micro_batch, share), 1

    def batches_of(size: int) -> list[TensorBatch]:
        return [batch_of(phase, recipe, each) for each in _sizes(share, size)]

    try:
        # 1. Build the network, with all that its training changes, and count the operations of one example.
        network = network_of(phase, recipe, str(device))
        learner = Learner(network, network.units, loop, accelerator, varied=phase == "game")
        operations = share * _operations(learner, batch_of(phase, recipe, 1).to(device))
        # 2. Find how many examples fit at once, and run steps with as many.
        most = _fitting(learner, wanted, batches_of)
        if not most:
            return None
        seconds, update_seconds = _timed(learner, batches_of(most))
    except torch.OutOfMemoryError as error:
        if accelerator.num_processes == 1:
            return None
        raise UserError(
            f"{phase}: process {accelerator.process_index} has too little memory for a micro-batch of {most}: set a "
            f"smaller {LOOP_KEYS[phase]}.micro_batch, or take --recipe card24"
        ) from error
    peak_gb = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
    step_seconds, peak_tflops = seconds + update_seconds, peak_tflops_of(accelerator)
    mfu = operations / step_seconds / peak_tflops / 1e12 if peak_tflops else None
    return Trial(phase, most, wanted, seconds, update_seconds, loop.steps * step_seconds / 3600, peak_gb, mfu)


def described(phase: PhaseName, loop: LoopSettings, trial: Trial | None, end: datetime) -> str:
    """Return a line about the cost of a phase.

    Args:
        end: when the phase ends if training begins now.
    """
    if trial is None:
        return f"{phase}: not even one example fits into memory; --recipe card24 takes less"
    figures = [f"{trial.seconds + trial.update_seconds:.3g} s a step, {trial.micro_batch} examples at once"]
    figures += [f"{trial.peak_gb:.1f} GB"] if trial.peak_gb else []
    figures += [f"MFU {trial.mfu:.0%}"] if trial.mfu else []
    figures.append(f"{loop.steps:,} steps take {trial.hours:.3g} hours, until {end:%Y-%m-%d %H:%M}")
    line = f"{phase}: {', '.join(figures)}"
    if trial.micro_batch < trial.wanted:
        line += f". {trial.wanted} at once did not fit: set {LOOP_KEYS[phase]}.micro_batch = {trial.micro_batch}"
    return line


def _fitting(learner: Learner, most: int, batches_of: Callable[[int], Sequence[TensorBatch]]) -> int:
    """Return the largest micro-batch up to `most` that fits into the memory of every process; 0 if none does.

    The attempts exchange no gradients, because a process that runs out of memory would leave the others waiting. With
    FSDP2 every pass is an exchange, so there only `most` is tried, in the steps that are timed.
    """
    accelerator = learner.accelerator
    if accelerator.is_fsdp2:
        return most
    own = fitting(most, lambda size: _step(learner, batches_of(size), exchanging=False))
    return -int(accelerator.reduce(torch.tensor(-own, device=accelerator.device), reduction="max"))


def fitting(most: int, attempt: Callable[[int], object]) -> int:
    """Return the largest size up to `most` whose attempt does not run out of a GPU's memory; 0 if there is none."""
    for size in range(most, 0, -1):
        try:
            attempt(size)
        except torch.OutOfMemoryError:
            continue  # the caches are freed outside, when the traceback no longer holds tensors
        else:
            return size
        finally:
            torch.cuda.empty_cache()
    return 0


def _sizes(share: int, most: int) -> list[int]:
    """Return the sizes of the micro-batches of a step."""
    return [min(most, share - at) for at in range(0, share, most)]


def _operations(learner: Learner, batch: TensorBatch) -> int:
    """Return the number of operations of forward and backward pass."""
    accelerator, network = learner.accelerator, learner.network
    with learner.uncompiled(), accelerator.no_sync(network), FlopCounterMode(display=False) as counter:
        _backward(learner, batch, 1)
    learner.drop_gradients()
    return int(counter.get_total_flops())


def _timed(learner: Learner, batches: Sequence[TensorBatch]) -> tuple[float, float]:
    """Return the median seconds of a step: of its passes, and of its update."""
    if learner.accelerator.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = [_step(learner, batches) for _ in range(_WARM + _TIMED)]
    first, second = zip(*times[_WARM:], strict=True)
    return median(first), median(second)


def _step(learner: Learner, batches: Sequence[TensorBatch], *, exchanging: bool = True) -> tuple[float, float]:
    """Run a step, and return the seconds of its passes and of its update.

    Args:
        exchanging: whether the processes add up their gradients.
    """
    accelerator = learner.accelerator
    moved = [batch.to(accelerator.device) for batch in batches]
    learner.drop_gradients()
    began = _now(accelerator)
    for number, batch in enumerate(moved, start=1):
        exchanges = exchanging and number == len(moved)
        with nullcontext() if exchanges else accelerator.no_sync(learner.network):
            _backward(learner, batch, len(moved))
    passed = _now(accelerator)
    learner.clip(1.0)
    learner.update(1e-6, skipped=False)
    return passed - began, _now(accelerator) - passed


def _backward(learner: Learner, batch: TensorBatch, count: int) -> None:
    accelerator, network = learner.accelerator, learner.network.train()
    with accelerator.autocast():
        loss_B: Tensor = network(batch)["loss"]
    accelerator.backward(loss_B.sum() / count)


def _now(accelerator: Accelerator) -> float:
    """Return the time when all that was given to the GPU is done, in seconds."""
    if accelerator.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def network_of(phase: PhaseName, recipe: Recipe, device: str) -> GameTraining | ShotNetworks | DistillNetworks:
    """Return the network of a phase with random weights (none on `meta`); trained parts in float32."""
    config, place = recipe.model, torch.device(device)
    with place:
        if phase == "game":
            language_model = wrap_language_model(random_base("language_model", config, device), config.game_model)
            network: Any = game_training(recipe, GameModel(language_model, config), place)
        elif phase == "guide":
            tokens_LD = torch.randn(config.shot_encoder.shot_tokens, config.shot_encoder.width)
            pair = _random_decoder(config, device), _random_decoder(config, device)
            network = guide_networks(recipe, config, *pair, tokens_LD)
        elif phase == "distill":
            pair = _random_decoder(config, device), _random_decoder(config, device)
            network = few_step_networks(recipe, config, *pair)
        else:
            decoder = _random_decoder(config, device)
            encoder = None if phase == "adapt" else ShotEncoder(config.shot_encoder)
            network = shot_networks(phase, recipe, config, decoder, encoder)
    frozen = FROZEN_PRECISION[resolved(precision_of(phase, recipe), place)]
    for parameter in network.parameters():
        parameter.data = parameter.data.to(torch.float32 if parameter.requires_grad else frozen)
    return network.train()  # type: ignore[no-any-return]


def _random_decoder(config: ModelConfig, device: str) -> ShotDecoder:
    stock = random_base("transformer", config, device).config
    decoder: ShotDecoder = ShotDecoder.from_config(stock, **decoder_options(config))
    add_lora(decoder, config.shot_decoder)
    return decoder


def batch_of(phase: PhaseName, recipe: Recipe, count: int) -> NoisedShots | GameBatch | FewStepShots:
    """Return random examples: windows of maximal length, packed if the recipe's are, and shots of all few steps."""
    if phase == "game":
        return GameBatch.of([_window(recipe)] * count, FLEX_BLOCK if recipe.game.windows.packed else 1)
    shot, encoder = recipe.model.shot_decoder, recipe.model.shot_encoder
    height, width = shot.height // SPATIAL_COMPRESSION, shot.width // SPATIAL_COMPRESSION
    latents_TCHW = torch.randn(shot.latent_frames, LATENT_CHANNELS, height, width)
    tokens_LD = torch.randn(encoder.shot_tokens, encoder.width)
    if phase == "distill":
        noises_KTCHW = latents_TCHW.expand(recipe.distill.denoising_steps, -1, -1, -1, -1)
        noised = (latents_TCHW, 500) * 2
        return FewStepShots.of([FewStepShot(latents_TCHW, tokens_LD, 5.0, noises_KTCHW, *noised, teaches=True)] * count)
    conditions: tuple[Tensor, ...] = (tokens_LD,)
    if phase in ("warm-up", "joint"):
        text_ND = torch.randn(encoder.text_tokens, encoder.text_width)
        conditions = (text_ND, torch.randn(encoder.image_tokens, encoder.image_width))
    return NoisedShots.of([NoisedShot(latents_TCHW, latents_TCHW, 500, 5.0, conditions)] * count)


def _window(recipe: Recipe) -> GameExample:
    encoder, conventions, windows = recipe.model.shot_encoder, recipe.model.conventions, recipe.game.windows
    state, tokens_LD = State(3, 0, 1, -1), torch.randn(encoder.shot_tokens, encoder.width)
    turns, tokenizer = [PastTurn(INSTRUCTION, tokens_LD, state)] * windows.most_turns, shipped_tokenizer()
    if windows.packed:
        prompt = write_packed_prompt(tokenizer, turns, len(tokens_LD), conventions)
    else:
        prompt = write_prompt(tokenizer, turns[1:], INSTRUCTION, len(tokens_LD), conventions, state)
    targets = len(prompt.targets)
    lengths = tuple(range(1, targets + 1)) if windows.packed else (windows.most_turns,)
    return GameExample(prompt, tokens_LD.expand(targets, -1, -1), (MEASURED,) * targets, lengths)


def precision_of(phase: PhaseName, recipe: Recipe) -> Precision:
    """Return the precision of a phase, by the recipe."""
    sections = {"game": recipe.game.precision, "adapt": recipe.adapt.precision}
    sections |= dict.fromkeys(("guide", "distill"), recipe.distill.precision)
    return sections.get(phase, recipe.shot.precision)
