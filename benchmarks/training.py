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
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from models.game_model import mistral_of
from models.prompt_batch import TensorBatch
from training.config import LoopSettings, Precision, Recipe
from training.phases.game import GameBatch, GameTraining
from training.processes import FROZEN_PRECISION, resolved
from training.recipes import ALL, RECIPES, PhaseName, loop_of, merged, read_recipe
from training.trial import batch_of, network_of, precision_of, try_phase

SUSTAINED_TFLOPS = 400.0
"""Assumed sustained rate of an H200 or H100, 40 % of its dense half-precision peak; for computed times only."""
_BYTES_TRAINED = 16
"""float32 weight and gradient, and the two moments of Adam."""
_BYTES_AVERAGED = 4
"""Moving average in float32."""


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


def computed(phase: PhaseName, recipe: Recipe) -> StepCost:
    """Compute the cost of a phase on networks without weights."""
    network = network_of(phase, recipe, "meta")
    frozen, trained = _sizes(network, loop_of(recipe, phase))
    with FlopCounterMode(display=False) as flops:
        _forward(network, batch_of(phase, recipe, 1).to(torch.device("meta"))).sum().backward()  # type: ignore[no-untyped-call]
    kept = _kept_bytes(network, phase, recipe)
    seconds = flops.get_total_flops() / 1e12 / SUSTAINED_TFLOPS
    return StepCost(frozen / 1e9, trained / 1e9, kept / 1e9, seconds, 0, False)


def measured(phase: PhaseName, recipe: Recipe) -> StepCost:
    """Measure the cost of a phase by a few steps on this machine."""
    frozen, trained = _sizes(network_of(phase, recipe, "meta"), loop_of(recipe, phase))
    loop = loop_of(recipe, phase)
    trial = try_phase(phase, with_loops(recipe, {"batch_size": loop.micro_batch}))
    if trial is None:
        raise SystemExit(f"{phase}: not even one example fits into memory")
    seconds, peak = trial.seconds / loop.micro_batch, 1e9 * (trial.peak_gb or 0)
    kept = max(0.0, peak - frozen - trained)
    return StepCost(frozen / 1e9, trained / 1e9, kept / 1e9, seconds, trial.update_seconds, True, trial.mfu)


def with_loops(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    """Return a recipe with the same changes to the training loops of all phases."""
    sections = {"shot": {"warm_up": changes, "joint": changes}, "game": {"loop": changes}, "adapt": {"loop": changes}}
    return Recipe.model_validate(merged(recipe.model_dump(), sections))


def _forward(network: nn.Module, batch: TensorBatch) -> Tensor:
    """Run a forward pass on tensors without values; only Mistral of the game model: query positions need values."""
    if not isinstance(batch, GameBatch):
        loss_B: Tensor = network(batch)["loss"]
        return loss_B
    assert isinstance(network, GameTraining)
    mistral, length = mistral_of(network.game_model.language_model), batch.prompts.ids_BL.shape[1]
    with batch.shot_tokens_NLD.device:
        ids_1L = torch.zeros(1, length, dtype=torch.long)
        mask_11LL = torch.ones(1, 1, length, length, dtype=torch.bool)
    states_1LH: Tensor = mistral.model(ids_1L, attention_mask=mask_11LL, use_cache=False).last_hidden_state
    return states_1LH


def _autocast(phase: PhaseName, recipe: Recipe, device: str) -> torch.autocast:
    kind = resolved(precision_of(phase, recipe), torch.device("meta"))  # any GPU, whatever this machine has
    return torch.autocast(device, FROZEN_PRECISION[kind], enabled=kind != "no")


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
    batch = batch_of(phase, recipe, 1)
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
        loop = loop_of(recipe, phase)
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
    parser.add_argument("--phase", choices=ALL, help="only this phase, and print it as JSON")
    parser.add_argument("--micro-batch", type=int, default=1, help="examples at once")
    parser.add_argument("--plain", action="store_true", help="do not compile the blocks")
    parser.add_argument("--packed", action=argparse.BooleanOptionalAction, help="windows; by default the recipe's")
    parser.add_argument("--here", action="store_true", help="measure without a GPU too")
    options = parser.parse_args()
    recipe = with_loops(
        in_precision(read_recipe(options.recipe), options.precision), {"micro_batch": options.micro_batch}
    )
    if options.plain:
        recipe = with_loops(recipe, {"compile": False})
    if options.packed is not None:
        changed = {"game": {"windows": {"packed": options.packed}}}
        recipe = Recipe.model_validate(merged(recipe.model_dump(), changed))
    if options.phase:
        cost = (measured if options.here or torch.cuda.is_available() else computed)(options.phase, recipe)
        print(json.dumps({**asdict(cost), "micro_batch": options.micro_batch, "torch": torch.__version__}))
        return
    costs: dict[PhaseName, StepCost] = {}
    for phase in ALL:
        command = [sys.executable, "-m", "benchmarks.training", *sys.argv[1:], "--phase", phase]
        printed: Any = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
        costs[phase] = StepCost(**{each.name: printed[each.name] for each in fields(StepCost)})
    Console(width=110).print(table_of(options.recipe, recipe, costs))


if __name__ == "__main__":
    main()
