"""Training process, for tests that launch several or kill one: `python -m tests.support.networks.training_process ...`.

`--sharded` trains with FSDP2 on CPUs. accelerate supports it for accelerators only, so two CPU processes call
themselves GPUs here before anything asks. All code under test is unchanged.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from torch.distributed.fsdp import FSDPModule

from training.config import Recipe
from training.processes import process_number
from training.run import TrainingRun
from training.run_folder import RunFolder
from training.trainer import StepReport


def shard_on_cpus() -> None:
    """Switch to FSDP2, although accelerate does not support it on CPUs."""
    os.environ.update(ACCELERATE_USE_FSDP="true", FSDP_VERSION="2")  # as `accelerate launch` sets them
    process_number()  # creates the process group
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def say_step(report: StepReport) -> None:
    if process_number() == 0:  # two processes that print at once would mix their lines
        print(report.phase, report.step, report.figures["loss"], flush=True)
        if report.step == 1:
            print(f"units of {report.phase}: {sharded_units()}", file=sys.stderr)


def sharded_units() -> list[str]:
    """Return the kinds of modules that are sharded now, by their class names."""
    modules = [found for found in gc.get_objects() if isinstance(found, FSDPModule)]
    return sorted({type(module).__name__ for module in modules})


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
