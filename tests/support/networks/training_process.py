"""Training process, for tests that launch several or kill one: `python -m tests.support.networks.training_process ...`.

`--sharded` trains with FSDP2 on CPUs. accelerate supports it for accelerators only and treats two CPU processes as
plain data-parallel, so its state is changed here before anything reads it. All code under test is unchanged.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

from training.config import Recipe
from training.run import TrainingRun
from training.run_folder import RunFolder, process_number
from training.trainer import StepReport


def shard_on_cpus() -> None:
    """Switch to FSDP2, although accelerate does not support it on CPUs."""
    os.environ.update(ACCELERATE_USE_FSDP="true", FSDP_VERSION="2", FSDP_AUTO_WRAP_POLICY="TRANSFORMER_BASED_WRAP")
    state = Accelerator().state
    state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap")
    for shared in (PartialState._shared_state, AcceleratorState._shared_state):
        shared["distributed_type"] = DistributedType.FSDP


def say_step(report: StepReport) -> None:
    if process_number() == 0:  # two processes that print at once would mix their lines
        print(report.phase, report.step, report.figures["loss"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--sharded", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.sharded:
        shard_on_cpus()
    recipe = Recipe.model_validate_json(given.recipe.read_bytes())
    run = TrainingRun(RunFolder(given.out, given.data, watch=say_step), recipe)
    run.shot()
    run.game()
    run.adapt()


if __name__ == "__main__":
    main()
