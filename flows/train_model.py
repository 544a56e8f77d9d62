"""Training flow: the phases in order, each a task that runs its command in a separate process.

A separate process always releases the GPU's memory, can be launched on several GPUs, and can be killed: a phase
resumes from its newest saved state, and a finished phase ends at once. SIGTERM and Ctrl-C are passed on to the phase in
progress, which then saves its state; no further phase is begun.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from prefect import State, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Failed

from flows.engine import run
from flows.train_request import TrainRequest
from pipeline.core.errors import UserError

PHASES = ("shot", "game", "adapt")
_PATIENCE = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "540"}
"""Seconds that a launcher leaves its processes after SIGTERM; a validation and a state may outlast its own 30."""


class Termination:
    """SIGTERM or Ctrl-C while `watched`: it is passed on to the process of the phase in progress."""

    def __init__(self) -> None:
        self.by: int | None = None
        """The first signal; None while there was none."""
        self._process: subprocess.Popen[str] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Pass both signals on during the block, which must run in the main thread."""
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        token = termination.set(self)
        try:
            yield
        finally:
            termination.reset(token)
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, command: list[str]) -> tuple[int, str]:
        """Run a command, unless a signal came before; return its exit code and what it printed."""
        if self.by:
            return 128 + self.by, ""
        environment = {**_PATIENCE, **os.environ}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as self._process:
            if self.by:  # while the process was started
                self._process.terminate()
            printed, _ = self._process.communicate()
        return self._process.returncode, printed

    def _ask(self, number: int, _: object) -> None:
        """Stop the phase after its step; at once if Ctrl-C follows another signal."""
        is_again, self.by = self.by is not None and number == signal.SIGINT, self.by or number
        if self._process:  # SIGTERM at first, since the phase may have had this Ctrl-C from the terminal too
            self._process.send_signal(signal.SIGINT if is_again else signal.SIGTERM)


termination: ContextVar[Termination] = ContextVar("termination")


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
    code, printed = termination.get(Termination()).run(command_of(phase, request))
    if code:
        raise UserError(f"ended with exit code {code}; the same command goes on from its last saved state, if any")
    return printed.splitlines()[-1]


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
