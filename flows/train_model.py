"""Training flow: the phases in order, each a task that runs its command in a separate process.

A separate process always releases the GPU's memory, can be launched on several GPUs, and can be killed: a phase
resumes from its newest saved state, and a finished phase ends at once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from prefect import State, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Failed

from flows.engine import run
from flows.train_request import TrainRequest
from pipeline.core.errors import UserError

PHASES = ("shot", "game", "adapt")


@flow(name="train-model", persist_result=False)
def train_model(request: TrainRequest) -> State[Any]:
    """Run all phases; the result is the folder of the last checkpoint. Ends as Failed if a phase failed."""
    checkpoint = ""
    for phase in PHASES:
        state = run(run_phase.with_options(task_run_name=phase), phase, request)
        if not state.is_completed():
            return Failed(message=f"{phase}: {state.result(raise_on_failure=False)}")
        checkpoint = state.result()
    return Completed(message="all phases are done", data=checkpoint)


@task(cache_policy=NO_CACHE, persist_result=False)
def run_phase(phase: str, request: TrainRequest) -> str:
    """Run one phase and return the folder of its checkpoint.

    Raises:
        UserError: its process failed; the process has printed the reason.
    """
    done = subprocess.run(command_of(phase, request), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise UserError(f"ended with exit code {done.returncode}; the same command resumes from its last state")
    return done.stdout.splitlines()[-1]


def command_of(phase: str, request: TrainRequest) -> list[str]:
    """Command line of a phase."""
    launch = [sys.executable]
    if request.accelerate:
        launch += ["-m", "accelerate.commands.launch", "--config_file", str(request.accelerate)]
    optional: dict[str, Path | str | None] = {
        "--out": request.out,
        "--recipe": request.recipe and request.recipe.value,
        "--from": request.start,
        "--fork-from": request.fork_from,
        "--ablation": request.ablation and request.ablation.value,
        "--config": request.config,
        "--features": request.features,
    }
    chosen = {name: str(value) for name, value in optional.items() if value}
    data = [part for source in request.data for part in ("--data", source)]
    trackers = [part for name in request.trackers for part in ("--tracker", name)]
    return [
        *launch,
        "-m",
        "flows.cli",
        "train",
        phase,
        *data,
        *(part for pair in chosen.items() for part in pair),
        *trackers,
    ]
