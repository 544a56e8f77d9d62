"""Training loop of all phases, on accelerate: CPU, one GPU, many GPUs, FSDP2.

A phase supplies network and examples; the loop knows nothing of shots or games. A killed run resumes from the newest
saved state, bit-exact on a CPU. The order of the examples, their noise and the dropout are functions of seed and step,
so no random state is carried from one step to the next. For the same reason, N processes with the same global batch
train like one.

One step is AdamW on the clipped gradient. Over the global batch of B examples with losses l_b and parameters theta:

    g = (1 / B) sum_b grad l_b(theta)
    g <- g min(1, clip_norm / ||g||)
    theta_n = AdamW(theta_{n-1}, g; learning rate eta_n, weight_decay)

`training/optimizer.py` has the schedule eta and the parameters without decay. With `ema_decay`, a moving average of the
weights is validated and exported (`training/optimizer.py`).

Files of a phase:

    FOLDER/states/       see training/states.py
    FOLDER/pictures/     pictures of validation
    FOLDER/snapshots/    exports of the phase in progress (`snapshot_every`, `animegamer snapshot`)
    FOLDER/result/       export of the phase after the last step; trained.json in it has one line for each phase so far
"""

from __future__ import annotations

import hashlib
import math
import shutil
import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from models.checkpoint_writer import writing
from models.untrained import Say
from pipeline.core.atomic import write_json
from pipeline.core.ingredients import read_note
from training.config import LoopSettings
from training.data.checks import check_batch
from training.data.order import Batches, Position, begin_reading
from training.learner import Learner
from training.optimizer import learning_rate
from training.phase import Collator, Phase, Share, StepBatch
from training.phase_folder import STATES, folder_name, newest
from training.pictures import FILM, track_clips
from training.processes import attention_for
from training.speed import SpeedMeter, peak_tflops_of
from training.states import StateWriter
from training.termination import Terminated, Termination

SNAPSHOTS, TRAINED = "snapshots", "trained.json"


@dataclass(frozen=True)
class StepReport:
    """Metrics of one training step."""

    phase: str
    step: int
    """Number of the step, from 1."""
    steps: int
    figures: Mapping[str, float]
    """Terms of the loss over the global batch, `learning_rate`, `gradient_norm`, `skipped` (batches so far); after
    a validation also its metrics, with the prefix `val/`."""


StepWatcher = Callable[[StepReport], None]


class Trainer:
    """Training loop of one phase in one folder."""

    def __init__(
        self, phase: Phase, loop: LoopSettings, folder: Path, accelerator: Accelerator, origin: str | None = None
    ) -> None:
        """Prepare the network and restore the newest saved state.

        Args:
            origin: state of another run that this run continues, for `trained.json`.

        Raises:
            UserError: there are no examples, or the batch cannot be divided among the processes.
        """
        self.phase, self.loop, self.folder, self.accelerator = phase, loop, folder, accelerator
        self.origin = origin
        self.learner = Learner(phase.network, phase.units, loop, accelerator, varied=phase.varied)
        self.states = StateWriter(folder / STATES, loop.keep, accelerator)
        self.done, self.termination = 0, Termination()
        self._found: dict[str, float] = {}
        self._saved = self._validated = time.monotonic()
        self.speed = SpeedMeter(accelerator.device, accelerator.num_processes, peak_tflops_of(accelerator))
        if (step := newest(self.states.folder)) is not None:
            self.learner.restore(self.states.folder, step)
            self.done = step

    def run(self, watch: StepWatcher | None = None, say: Say = lambda _: None) -> Path:
        """Train to the end and export.

        Returns:
            The folder of the result.

        Raises:
            UserError: several batches in a row have a loss or gradient that is not finite, or a state cannot be
                written.
            Terminated: a process received SIGTERM or Ctrl-C, and the state is saved; after the last step, the result
                too.
            KeyboardInterrupt: Ctrl-C came again; nothing more is saved.
        """
        accelerator, loop, first = self.accelerator, self.loop, self.done
        kernels = attention_for(accelerator.mixed_precision, accelerator.device)
        with self.termination.watched(say), kernels, self.states, closing(self._batches()) as batches:
            self._export_missed()
            steps = zip(range(first, loop.steps), batches, strict=True)
            for step, batch in self.speed.waiting(steps):
                if step == first:  # the first examples can take a minute
                    self._end_if_asked()
                self._run_step(step, batch, watch)
            if first == loop.steps:  # the run was stopped between its last state and the validation after it
                self._found = self._validate()
                accelerator.log(self._found, step=self.done)
            self.export(self.folder / "result")
        self._end_if_asked()  # no further phase is begun
        return self.folder / "result"

    def _run_step(self, step: int, batch: StepBatch, watch: StepWatcher | None) -> None:
        """Run one step, with what is due after it: saving, validation, reports."""
        loop = self.loop
        # 1. Update the weights, and measure how long it took.
        if self.speed.misses_operations:
            self._count_operations()
        figures = self._update_weights(step, batch)
        speeds = self.speed.figures(batch.examples, figures.pop("units"))
        self.done = step + 1
        is_last, stops = self.done == loop.steps, figures.pop("stops") > 0
        saves, validates = figures.pop("saves") > 0, figures.pop("validates") > 0
        # 2. Save the state if it is due, at a signal, and after the last step. Training goes on meanwhile.
        if figures.pop("unsaved") > 0:
            self.states.wait()
        if self.done % loop.save_every == 0 or is_last or stops or saves:
            self.states.save(self.done, self.learner.state())
            self._saved = time.monotonic()
        if stops and not is_last:
            self.states.wait()
            raise self._terminated()
        # 3. Export and validate after saving: sampling needs additional memory, and may run out of memory.
        if self._snapshot:
            self.export(self._snapshot)
        if self.done % loop.validate_every == 0 or is_last or validates:
            self._found = self._validate()
            figures |= self._found
            self._validated = time.monotonic()
        # 4. Report.
        self.accelerator.log(figures | speeds, step=self.done)
        if watch:
            watch(StepReport(self.phase.name, self.done, loop.steps, figures))

    def _update_weights(self, step: int, batch: StepBatch) -> dict[str, float]:
        """Run one optimizer step on this process's share of the batch.

        Returns:
            The terms of the global batch, `units` (the size of a process's examples), and four shares of the
            processes: `stops` were asked to stop, for `saves` and `validates` the minutes between two are over, and
            `unsaved` could not write the last state.
        """
        loop, accelerator, learner = self.loop, self.accelerator, self.learner
        # 1. Compute the gradient.
        sums = self._add_gradients(step, batch)
        # 2. Average over the processes, also what is due: all of them stop, save and validate after the same step.
        sums["stops"] = self._stops()
        sums["saves"] = self._is_over(loop.save_minutes, self._saved)
        sums["validates"] = self._is_over(loop.validate_minutes, self._validated)
        sums["unsaved"] = torch.tensor(float(self.states.has_failed), device=accelerator.device)
        sums["units"] = torch.tensor(batch.units, device=accelerator.device)
        figures = _by_kind(self._over_all(sums))
        # 3. Clip the gradient, and take the step unless loss or gradient is not finite.
        rate, norm, skips = learning_rate(loop, step), learner.clip(loop.clip_norm), learner.skips
        skipped = skips.count(self.phase.name, step + 1, figures["loss"], norm, scale=learner.scale())
        learner.update(rate, skipped=skipped, step=step)
        return {**figures, "learning_rate": rate, "gradient_norm": norm, "skipped": skips.total}

    def _add_gradients(self, step: int, batch: StepBatch) -> dict[str, Tensor]:
        """Add up the gradients of the micro-batches. Return the means of the terms over this process's examples."""
        accelerator, network = self.accelerator, self.learner.network
        # seed the dropout inside the networks by the step, so that a resumed run draws the same
        set_seed(_seed_of(self.loop.seed, step, accelerator.process_index))
        network.train()
        sums: dict[str, Tensor] = {}
        for number, micro_batch in enumerate(batch.micro_batches, start=1):
            is_last = number == len(batch.micro_batches)  # only then the processes exchange gradients
            with nullcontext() if is_last else accelerator.no_sync(network):
                with accelerator.autocast():  # accelerate puts it into the network itself, but not with FSDP2
                    terms = network(micro_batch.to(accelerator.device))
                accelerator.backward(terms["loss"].sum() / batch.examples)
            for name, values_B in terms.items():
                sums[name] = sums.get(name, 0) + values_B.detach().float().sum() / batch.examples
        return sums

    def _count_operations(self) -> None:
        """Count the operations of an example for the MFU, in a pass without an update.

        No counter sees compiled blocks. Uncompiled ones need more memory, so the pass has one example.
        """
        learner, phase = self.learner, self.phase
        example: Any = phase.examples[Position(0, 0, step=1)]  # in `distill`, a step without the student, as most are
        batch = Collator(phase.size_of, phase.collate, 1)([example])
        with learner.uncompiled(), self.accelerator.no_sync(learner.network), self.speed.counting(batch.units):
            self._add_gradients(0, batch)
        learner.drop_gradients()

    def _validate(self) -> dict[str, float]:
        network = self.learner.network.eval()
        pictures = self.folder / "pictures" / folder_name(self.done)
        with self.learner.averaged(), self.learner.uncompiled(), torch.no_grad(), self.accelerator.autocast():
            own_pictures = pictures if self.accelerator.is_main_process else None
            found = self.phase.validate(network, self.accelerator.device, own_pictures, Share.of(self.accelerator))
        if self.accelerator.is_main_process:
            track_clips(self.accelerator, pictures / FILM, self.done)
        return {f"val/{name}": value for name, value in found.items()}

    def export(self, target: Path) -> None:
        """Write the checkpoint of the steps done so far. Collective call.

        It replaces an earlier one, from steps that a resumed run has repeated.
        """
        with self.learner.averaged():  # until the end: on a CPU the state aliases the weights
            state = self.learner.weights()
            if self.accelerator.is_main_process:
                for left in (target, *target.parent.glob(f".{target.name}-*")):  # the latter by a run killed here
                    shutil.rmtree(left, ignore_errors=True)
                with writing(target) as part:
                    self.phase.export(part, state)
                    self._note_training(part)
        self.accelerator.wait_for_everyone()

    def _end_if_asked(self) -> None:
        """Raise Terminated if any process was asked to stop. Collective call."""
        if self._over_all({"stops": self._stops()})["stops"] > 0:
            raise self._terminated()

    def _terminated(self) -> Terminated:
        return Terminated(self.phase.name, self.done, self.termination.by or signal.SIGTERM)

    def _export_missed(self) -> None:
        """Export the snapshot of the restored state if the run was stopped between the two. Collective call."""
        if self.done and self._snapshot:
            missing = torch.tensor(float(not self._snapshot.exists()), device=self.accelerator.device)
            if self._over_all({"missing": missing})["missing"] > 0:
                self.export(self._snapshot)

    @property
    def _snapshot(self) -> Path | None:
        """Folder of the snapshot that is due after the steps done, if one is; after the last step it is the result."""
        every = self.loop.snapshot_every
        is_due = every and self.done % every == 0 and self.done < self.loop.steps
        return self.folder / SNAPSHOTS / folder_name(self.done) if is_due else None

    def _batches(self) -> Generator[StepBatch]:
        loop, accelerator = self.loop, self.accelerator
        check_batch(self.phase.name, loop, accelerator.num_processes)
        sampler = Batches(
            len(self.phase.examples),
            loop.batch_size,
            loop.seed,
            steps=range(self.done, loop.steps),
            process=accelerator.process_index,
            processes=accelerator.num_processes,
        )
        examples: Dataset[Any] = self.phase.examples  # type: ignore[assignment]  # torch needs only these methods
        yield from DataLoader(
            examples,
            batch_sampler=sampler,
            num_workers=loop.loader_workers,
            collate_fn=Collator(self.phase.size_of, self.phase.collate, loop.micro_batch),
            pin_memory=accelerator.device.type == "cuda",
            worker_init_fn=begin_reading,
        )

    def _stops(self) -> Tensor:
        """Return 1 if this process was asked to stop, else 0."""
        return torch.tensor(float(self.termination.by is not None), device=self.accelerator.device)

    def _is_over(self, minutes: float, since: float) -> Tensor:
        """Return 1 if so many minutes are over, else 0; with 0 minutes always 0."""
        over = minutes > 0 and time.monotonic() - since >= 60 * minutes
        return torch.tensor(float(over), device=self.accelerator.device)

    def _over_all(self, sums: dict[str, Tensor]) -> dict[str, float]:
        """Return means over the global batch from this process's means."""
        stacked = self.accelerator.reduce(torch.stack(list(sums.values())), reduction="mean")
        return dict(zip(sums, stacked.tolist(), strict=True))

    def _note_training(self, checkpoint: Path) -> None:
        """Add this phase, and the last validation of a finished one, to `trained.json` of a checkpoint."""
        earlier = read_note(checkpoint / TRAINED) or {"phases": []}
        this = {"phase": self.phase.name, "step": self.done, "steps": self.loop.steps}
        if self.origin:
            this["forked_from"] = self.origin
        note: dict[str, Any] = {**earlier, "phases": [*earlier["phases"], this]}
        if self._found and self.done == self.loop.steps:
            finite = {name: value for name, value in self._found.items() if math.isfinite(value)}  # JSON has no other
            found = {name.removeprefix("val/"): value for name, value in finite.items()}
            note["validation"] = {**earlier.get("validation", {}), self.phase.name: found}
        write_json(checkpoint / TRAINED, note)


def _by_kind(means: dict[str, float]) -> dict[str, float]:
    """Divide the loss of each kind of examples by its share; leave out kinds that the batch does not have."""
    shares = {name.removeprefix("share/"): share for name, share in means.items() if name.startswith("share/")}
    kinds = {f"loss/{kind}": means[f"loss/{kind}"] / share for kind, share in shares.items() if share}
    others = {name: mean for name, mean in means.items() if not name.startswith(("share/", "loss/"))}
    return others | kinds


def _seed_of(*numbers: int) -> int:
    """Derive a seed, in numpy's range, from numbers."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:4], "big")
