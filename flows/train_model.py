"""The training flow: the phases one after the other, each a task that runs the command for it in a process of its own.

A process of its own frees the device's memory whatever happened, can be launched on many devices, and can be killed: a
phase goes on from its newest saved state, and one that is done says so and ends.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from prefect import State, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Failed

from flows.train_request import TrainRequest
from pipeline.core.errors import UserError

PHASES = ("shot", "game", "adapt")


@flow(name="train-model", persist_result=False)
def train_model(request: TrainRequest) -> State[Any]:
    """Run all phases; the result is the folder of the last checkpoint. It ends as Failed where a phase did."""
    checkpoint = ""
    for phase in PHASES:
        state: State[str] = run_phase.with_options(task_run_name=phase)(phase, request, return_state=True)
        if not state.is_completed():
            return Failed(message=f"{phase}: {state.result(raise_on_failure=False)}")
        checkpoint = state.result()
    return Completed(message="all phases are done", data=checkpoint)


@task(cache_policy=NO_CACHE, persist_result=False)
def run_phase(phase: str, request: TrainRequest) -> str:
    """Run one phase to its end; the folder of its checkpoint.

    Raises:
        UserError: its process failed; what was wrong it has said itself.
    """
    done = subprocess.run(command_of(phase, request), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise UserError(f"ended with exit code {done.returncode}; the same command goes on from its last state")
    return done.stdout.splitlines()[-1]


def command_of(phase: str, request: TrainRequest) -> list[str]:
    """The command line of a phase."""
    launch = [sys.executable]
    if request.accelerate:
        launch += ["-m", "accelerate.commands.launch", "--config_file", str(request.accelerate)]
    options = {"--data": request.data, "--out": str(request.out), "--recipe": request.recipe.value}
    optional: dict[str, Path | str | None] = {
        "--from": request.start,
        "--ablation": request.ablation and request.ablation.value,
        "--config": request.config,
    }
    given = options | {name: str(value) for name, value in optional.items() if value}
    trackers = [part for name in request.trackers for part in ("--tracker", name)]
    return [*launch, "-m", "flows.cli", "train", phase, *(part for pair in given.items() for part in pair), *trackers]
