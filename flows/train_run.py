"""Request of a training run, and the processes that run its parts.

Each phase of `all`, and each launch on several GPUs, is a separate process. It always releases the GPU's memory, and it
can be killed: a phase resumes from its newest saved state, and a finished phase ends at once. SIGTERM and Ctrl-C are
passed on to the running process, which then saves its state, and no other process is started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from pipeline.core.errors import UserError
from pipeline.plan.request import without_secrets

_PATIENCE = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "540"}
"""Seconds that a launcher waits for its processes after SIGTERM. Validating and saving may take longer than its 30."""
_FIRST_PORT = 29500
"""Port at which the machines meet for the first part. Each later part uses the next port."""

RecipeName = Literal["tiny", "mini", "full", "paper", "card24", "one-film"]
EncoderAblation = Literal["random-frame", "linear", "addition", "cross-attention"]
Ablation = Literal[EncoderAblation, "no-warm-up", "no-motion-scope", "no-adaptation", "cosine-loss", "no-history"]
TrainPart = Literal["features", "shot", "game", "adapt", "all", "gc", "gfc", "distill"]


class TrainRequest(BaseModel):
    """Request of `animegamer train`: data, folder of the run, recipe and options."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    data: tuple[Annotated[str, AfterValidator(without_secrets)], ...]
    out: Path
    start: Path | None = None
    fork_from: Path | None = None
    recipe: RecipeName | None = None
    ablation: Ablation | None = None
    config: Path | None = None
    features: Path | None = None
    trackers: tuple[str, ...] = ("tensorboard",)
    accelerate: Path | None = None
    machine_rank: int | None = None
    main_address: Annotated[str, StringConstraints(pattern=r"^[^:]+(:[0-9]+)?$")] | None = None

    def command(self, part: TrainPart) -> list[str]:
        """Return the command line that runs a part in a separate process."""
        options: dict[str, Path | str | None] = {
            "--out": self.out,
            "--recipe": self.recipe,
            "--from": self.start,
            "--fork-from": self.fork_from,
            "--ablation": self.ablation,
            "--config": self.config,
            "--features": self.features,
        }
        data = [("--data", source) for source in self.data]
        trackers = [("--tracker", name) for name in self.trackers]
        pairs = [*data, *((name, str(value)) for name, value in options.items() if value), *trackers]
        words = [word for pair in pairs for word in pair]
        return [sys.executable, *self._launcher(part), "-m", "flows.cli", "train", part, *words]

    def _launcher(self, part: TrainPart) -> list[str]:
        """Return the words that launch a part by accelerate; empty without `--accelerate`."""
        if not self.accelerate:
            return []
        words = ["-m", "accelerate.commands.launch", "--config_file", str(self.accelerate)]
        if self.machine_rank is not None:
            words += ["--machine_rank", str(self.machine_rank)]
        if self.main_address:
            host, _, port = self.main_address.partition(":")
            own = int(port or _FIRST_PORT) + get_args(TrainPart).index(part)
            words += ["--main_process_ip", host, "--main_process_port", str(own)]
        return words


class Processes:
    """Processes that run one after the other, while signals are `watched`."""

    def __init__(self) -> None:
        self.stopped_by: int | None = None
        """The first signal; None while there was none."""
        self._process: subprocess.Popen[str] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Pass SIGTERM and Ctrl-C on during the block, which must run in the main thread."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, command: list[str]) -> tuple[int, str]:
        """Run a command, unless a signal came before; return its exit code and what it printed."""
        if self.stopped_by:
            return 128 + self.stopped_by, ""
        environment = {**_PATIENCE, **os.environ}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as self._process:
            if self.stopped_by:  # while the process was started
                self._process.terminate()
            printed, _ = self._process.communicate()
        return self._process.returncode, printed

    def _stop(self, number: int, _: object) -> None:
        """Stop the process after its step; at once if Ctrl-C follows another signal."""
        is_again, self.stopped_by = self.stopped_by is not None and number == signal.SIGINT, self.stopped_by or number
        if self._process:  # SIGTERM at first, since the process may have had this Ctrl-C from the terminal too
            self._process.send_signal(signal.SIGINT if is_again else signal.SIGTERM)


class StoppedError(Exception):
    """A signal ended training before all parts were done."""

    def __init__(self, by: int) -> None:
        super().__init__(f"stopped by {'Ctrl-C' if by == signal.SIGINT else 'SIGTERM'}; the same command resumes")
        self.by = by


def run_parts(part: TrainPart, request: TrainRequest, *, tried: bool = False) -> str:
    """Run a part, or the three phases of `all` in order, in separate processes. Return the folder of the last result.

    Args:
        tried: only run a few steps of all phases in one process, and print what they cost.

    Raises:
        UserError: a part failed; its process has printed the reason.
        StoppedError: a signal came, and was passed on.
    """
    processes, printed = Processes(), ""
    parts: tuple[TrainPart, ...] = ("shot", "game", "adapt") if part == "all" and not tried else (part,)
    with processes.watched():
        for each in parts:
            code, printed = processes.run([*request.command(each), *(["--try"] if tried else [])])
            if code and processes.stopped_by:
                raise StoppedError(processes.stopped_by)
            if code:
                raise UserError(
                    f"{each} ended with exit code {code}; the same command continues from its last saved state, if any"
                )
    return printed if tried else printed.splitlines()[-1]
