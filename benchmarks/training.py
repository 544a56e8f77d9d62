"""Benchmark of training: memory and time of a step of each phase; `make bench-training`, with `RECIPE=card24` etc.

On a GPU a few steps are run, with random weights of the recipe's size and random examples, each phase in a separate
process, in the recipe's precision or that of `--precision`; with the MFU where the card's peak is known. Without a GPU
the figures are computed on networks without weights, and marked so: bytes of weights, gradients and optimizer; bytes
kept by autograd for the backward pass, assuming flash attention; operations of both passes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from models.frames import LATENT_CHANNELS
from models.game_model import GameModel, mistral_of, wrap_language_model
from models.prompt_batch import PromptBatch
from models.shot_decoder import (
    SPATIAL_COMPRESSION,
    ShotDecoder,
    add_lora,
    decoder_options,
    unfreeze_for_adaptation,
    unfreeze_for_joint,
    unfreeze_for_warm_up,
)
from models.shot_encoder import ShotEncoder
from models.tokens import PastTurn, State, shipped_tokenizer, write_packed_prompt, write_prompt
from models.untrained import random_base
from training.config import LoopSettings, Precision, Recipe
from training.optimizer import MovingAverage, make_optimizer
from training.phases.game import GameBatch, GameTraining
from training.phases.shot import NoisedShots, ShotNetworks
from training.processes import FROZEN_PRECISION, resolved
from training.recipes import PHASES, RECIPES, PhaseName, merged, read_recipe
from training.speed import PEAK_TFLOPS

INSTRUCTION = "Character: Qiqi; Motion: slowly fly over the sea; Background: morning sky."
SUSTAINED_TFLOPS = 400.0
"""Assumed sustained rate of an H200 or H100, 40 % of its dense half-precision peak; for computed times only."""
_BYTES_TRAINED = 16
"""float32 weight and gradient, and the two moments of Adam."""
_BYTES_AVERAGED = 4
"""Moving average in float32."""
_STEPS = 5


@dataclass(frozen=True)
class StepCost:
    """Cost of one step with one example on one GPU."""

    frozen_gb: float
    trained_gb: float
    """Weights in float32, gradients, moments, and the moving average unless it is in main memory."""
    kept_gb: float
    """Memory kept by the forward pass for the backward pass; if measured, the peak without the two above."""
    seconds: float
    """Seconds of the example's forward and backward pass."""
    update_seconds: float
    """Seconds of the optimizer's update and the average's, once a step however many its examples; 0 if computed."""
    measured: bool
    mfu: float | None = None
    """Share of the card's half-precision peak, recomputed activations included; None: computed, or unknown card."""

    @property
    def peak_gb(self) -> float:
        """Peak memory, the sum of the three."""
        return self.frozen_gb + self.trained_gb + self.kept_gb

    def gpu_hours(self, loop: LoopSettings) -> float:
        """Return the hours of a phase on one GPU."""
        return loop.steps * (loop.batch_size * self.seconds + self.update_seconds) / 3600


def network_of(phase: PhaseName, recipe: Recipe, device: str) -> nn.Module:
    """Return the network of a phase with random weights (none on `meta`); trained parts unfrozen, in float32."""
    config = recipe.model
    with torch.device(device):
        if phase == "game":
            language_model = wrap_language_model(random_base("language_model", config, device), config.game_model)
            network: nn.Module = GameTraining(GameModel(language_model, config), recipe.game.alpha, recipe.game.beta)
            if recipe.game.gradient_checkpointing:
                mistral_of(language_model).activation_checkpointing_enable({"use_reentrant": False})
        else:
            stock = random_base("transformer", config, device).config
            decoder = ShotDecoder.from_config(stock, **decoder_options(config))
            add_lora(decoder, config.shot_decoder)
            encoder = ShotEncoder(config.shot_encoder)
            network = ShotNetworks(decoder, None if phase == "adapt" else encoder, motion_scope=True)
            _thaw(phase, encoder, decoder, whole="transformer" in config.whole)
            if (recipe.adapt if phase == "adapt" else recipe.shot).gradient_checkpointing:
                decoder.enable_gradient_checkpointing()
    for parameter in network.parameters():
        kind = torch.float32 if parameter.requires_grad else FROZEN_PRECISION[precision_of(phase, recipe)]
        parameter.data = parameter.data.to(kind)
    return network.train()


def batch_of(phase: PhaseName, recipe: Recipe, device: str) -> NoisedShots | GameBatch:
    """Return one random example; for the game model a window of maximal length, packed if the recipe's are."""
    config = recipe.model
    shot, encoder = config.shot_decoder, config.shot_encoder
    tokens_LD = torch.randn(encoder.shot_tokens, encoder.width)
    if phase == "game":
        state = State(3, 0, 1, -1)
        turns, tokenizer = (
            [PastTurn(INSTRUCTION, tokens_LD, state)] * recipe.game.windows.most_turns,
            shipped_tokenizer(),
        )
        if recipe.game.windows.packed:
            prompt = write_packed_prompt(tokenizer, turns, len(tokens_LD), config.conventions)
        else:
            prompt = write_prompt(tokenizer, turns[1:], INSTRUCTION, len(tokens_LD), config.conventions, state)
        count, none = len(prompt.targets), torch.zeros(1, dtype=torch.long)
        wanted = tokens_LD.expand(count, -1, -1), torch.tensor([state.ids] * count), torch.ones(count, 4).bool()
        return GameBatch(PromptBatch.of([prompt]), *wanted, none, torch.ones(count).long()).to(torch.device(device))
    height, width = shot.height // SPATIAL_COMPRESSION, shot.width // SPATIAL_COMPRESSION
    latents_BTCHW = torch.randn(1, shot.latent_frames, LATENT_CHANNELS, height, width)
    conditions: tuple[Tensor, ...] = (tokens_LD[None],)
    if phase != "adapt":
        text = torch.randn(1, encoder.text_tokens, encoder.text_width)
        conditions = (text, torch.randn(1, encoder.image_tokens, encoder.image_width))
    batch = NoisedShots(latents_BTCHW, latents_BTCHW, torch.tensor([500]), torch.tensor([5.0]), conditions)
    return batch.to(torch.device(device))


def computed(phase: PhaseName, recipe: Recipe) -> StepCost:
    """Compute the cost of a phase on networks without weights."""
    network = network_of(phase, recipe, "meta")
    frozen, trained = _sizes(network, loop_of(phase, recipe))
    with FlopCounterMode(display=False) as flops:
        _forward(network, batch_of(phase, recipe, "meta")).sum().backward()  # type: ignore[no-untyped-call]
    kept = _kept_bytes(network, phase, recipe)
    seconds = flops.get_total_flops() / 1e12 / SUSTAINED_TFLOPS
    return StepCost(frozen / 1e9, trained / 1e9, kept / 1e9, seconds, 0, False)


def measured(phase: PhaseName, recipe: Recipe) -> StepCost:
    """Measure the cost of a phase by a few steps on the GPU."""
    network, batch = network_of(phase, recipe, "cuda"), batch_of(phase, recipe, "cuda")
    frozen, trained = _sizes(network, loop_of(phase, recipe))
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    loop = loop_of(phase, recipe)
    optimizer = make_optimizer(network, loop)
    average = MovingAverage(parameters, loop.ema_decay, on_cpu=loop.ema_on_cpu) if loop.ema_decay else None
    counter = FlopCounterMode(display=False)
    times = [_now()]
    for step in range(_STEPS + 2):
        if step == 2:  # the first steps select kernels and allocate the moments
            torch.cuda.reset_peak_memory_stats()
        with counter if step == 0 else nullcontext():
            with _autocast(phase, recipe, "cuda"):
                loss = network(batch)["loss"].sum()
            loss.backward()
        times.append(_now())
        optimizer.step()
        optimizer.zero_grad()
        if average:
            average.step()
        times.append(_now())
    peak = torch.cuda.max_memory_allocated()
    parts = [after - before for before, after in pairwise(times)][4:]
    seconds, update_seconds = sum(parts[::2]) / _STEPS, sum(parts[1::2]) / _STEPS
    peak_tflops = PEAK_TFLOPS.get(torch.cuda.get_device_name())
    mfu = peak_tflops and counter.get_total_flops() / seconds / (peak_tflops * 1e12)
    return StepCost(frozen / 1e9, trained / 1e9, (peak - frozen - trained) / 1e9, seconds, update_seconds, True, mfu)


def _now() -> float:
    """Return the time when all that was given to the GPU is done, in seconds."""
    torch.cuda.synchronize()
    return time.perf_counter()


def _forward(network: nn.Module, batch: NoisedShots | GameBatch) -> Tensor:
    """Run a forward pass on tensors without values; only Mistral of the game model: query positions need values."""
    if isinstance(batch, NoisedShots):
        loss_B: Tensor = network(batch)["loss"]
        return loss_B
    assert isinstance(network, GameTraining)
    mistral, length = mistral_of(network.game_model.language_model), batch.prompts.ids_BL.shape[1]
    with batch.shot_tokens_NLD.device:
        ids_1L = torch.zeros(1, length, dtype=torch.long)
        mask_11LL = torch.ones(1, 1, length, length, dtype=torch.bool)
    states_1LH: Tensor = mistral.model(ids_1L, attention_mask=mask_11LL, use_cache=False).last_hidden_state
    return states_1LH


def _thaw(phase: PhaseName, encoder: ShotEncoder, decoder: ShotDecoder, *, whole: bool) -> None:
    if phase == "warm-up":
        unfreeze_for_warm_up(encoder, decoder)
    elif phase == "joint":
        unfreeze_for_joint(encoder, decoder, whole=whole)
    else:
        unfreeze_for_adaptation(decoder, whole=whole)


def precision_of(phase: PhaseName, recipe: Recipe) -> Precision:
    """Return the precision of a phase."""
    sections = {"game": recipe.game.precision, "adapt": recipe.adapt.precision}
    card = torch.device("meta")  # any GPU, whatever this machine has
    return resolved(sections.get(phase, recipe.shot.precision), card)


def _autocast(phase: PhaseName, recipe: Recipe, device: str) -> torch.autocast:
    kind = precision_of(phase, recipe)
    return torch.autocast(device, FROZEN_PRECISION[kind], enabled=kind != "no")


def loop_of(phase: PhaseName, recipe: Recipe) -> LoopSettings:
    """Return the settings of a phase's training loop."""
    loops = {"warm-up": recipe.shot.warm_up, "joint": recipe.shot.joint, "game": recipe.game.loop}
    return loops.get(phase, recipe.adapt.loop)


def _sizes(network: nn.Module, loop: LoopSettings) -> tuple[int, int]:
    """Return the bytes of frozen and of trained parameters, with all that the GPU holds for each."""
    each_trained = _BYTES_TRAINED + (_BYTES_AVERAGED if loop.ema_decay and not loop.ema_on_cpu else 0)
    frozen = sum(each.numel() * each.itemsize for each in network.parameters() if not each.requires_grad)
    return frozen, sum(each.numel() * each_trained for each in network.parameters() if each.requires_grad)


def _kept_bytes(network: nn.Module, phase: PhaseName, recipe: Recipe) -> int:
    """Return the bytes of tensors kept by a forward pass, each storage once, without the network's parameters.

    Computed for a CPU, whose attention keeps the same tensors as flash attention on a GPU. With gradient checkpointing
    the true peak is larger by the tensors of one block.
    """
    batch = batch_of(phase, recipe, "cpu")
    with FakeTensorMode(allow_non_fake_inputs=True):
        _put_on_a_cpu_without_memory(network)
        own = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
        kept: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                kept[storage._cdata] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor), _autocast(phase, recipe, "cpu"):
            _forward(network, batch)
    return sum(kept.values())


def _put_on_a_cpu_without_memory(network: nn.Module) -> None:
    """Replace parameters and buffers by fake CPU tensors in a FakeTensorMode, in which peft modules cannot be made."""
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            empty, wanted = torch.empty(parameter.shape, dtype=parameter.dtype), parameter.requires_grad
            setattr(module, name, nn.Parameter(empty, requires_grad=wanted))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def table_of(name: str, recipe: Recipe, costs: dict[PhaseName, StepCost]) -> Table:
    """Return a table of the costs, side by side."""
    source = "measured" if next(iter(costs.values())).measured else "computed, not measured"
    table = Table(title=f"a step with one example on one card, recipe {name} ({source})")
    sizes_of = ("frozen GB", "trained GB", "kept GB", "peak GB")
    for heading in ("phase", *sizes_of, "s", "update s", "steps", "batch", "GPU hours", "MFU"):
        table.add_column(heading, justify="right" if heading != "phase" else "left")
    for phase, cost in costs.items():
        loop = loop_of(phase, recipe)
        sizes = [f"{size:.1f}" for size in (cost.frozen_gb, cost.trained_gb, cost.kept_gb, cost.peak_gb)]
        seconds = f"{cost.seconds:.2f}", f"{cost.update_seconds:.2f}" if cost.measured else ""
        loops = f"{loop.steps:,}", str(loop.batch_size), f"{cost.gpu_hours(loop):,.0f}"
        table.add_row(phase, *sizes, *seconds, *loops, "" if cost.mfu is None else f"{cost.mfu:.0%}")
    return table


def in_precision(recipe: Recipe, precision: Precision | None) -> Recipe:
    """Return a recipe with all phases in one precision; None: as it is."""
    sections = {section: {"precision": precision} for section in ("shot", "game", "adapt")} if precision else {}
    return Recipe.model_validate(merged(recipe.model_dump(), sections))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=tuple(RECIPES), default="full")
    parser.add_argument("--precision", choices=("fp16", "bf16"), help="of all phases; by default the recipe's")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    recipe = in_precision(read_recipe(options.recipe), options.precision)
    if options.phase:
        cost = (measured if torch.cuda.is_available() else computed)(options.phase, recipe)
        print(json.dumps(asdict(cost)))
        return
    costs: dict[PhaseName, StepCost] = {}
    for phase in PHASES:
        command = [sys.executable, "-m", "benchmarks.training", "--recipe", options.recipe, "--phase", phase]
        command += ["--precision", options.precision] if options.precision else []
        fields: Any = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
        costs[phase] = StepCost(**fields)
    Console(width=110).print(table_of(options.recipe, recipe, costs))


if __name__ == "__main__":
    main()
