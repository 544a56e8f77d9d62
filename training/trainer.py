"""Training loop of all phases, on accelerate: CPU, one GPU, many GPUs, FSDP2.

A phase supplies network and examples; the loop knows nothing of shots or games. A killed run resumes from the newest
saved state, bit-exact on a CPU: the order of the examples, their noise and the dropout are functions of seed and step,
and no random state is carried from one step to the next. For the same reason N processes with the same global batch
train like one.

One step is AdamW on the clipped gradient. Over the global batch of B examples with losses l_b and parameters theta:

    g = (1 / B) sum_b grad l_b(theta)
    g <- g min(1, clip_norm / ||g||)
    theta_n = AdamW(theta_{n-1}, g; learning rate eta_n, weight_decay)

`training/optimizer.py` has the schedule eta and the parameters without decay. With `ema_decay`, a moving average of the
weights is validated and exported (`training/average.py`).

Files of a phase:

    FOLDER/states/       see training/run_states.py
    FOLDER/log/          TensorBoard files, or those of another tracker
    FOLDER/looks/        pictures of validation
    FOLDER/snapshots/    exports of the phase under way (`snapshot_every`, `animegamer snapshot`)
    FOLDER/result/       export of the phase after the last step; trained.json in it has one line for each phase so far
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, Dataset

from models.checkpoint_writer import writing
from pipeline.core.atomic import write_json
from pipeline.core.ingredients import read_note
from training import run_states as states
from training import state_files
from training.average import MovingAverage
from training.config import LoopSettings
from training.data.checks import check_batch
from training.data.order import Batches
from training.data.reading import begin_reading
from training.optimizer import learning_rate, make_optimizer
from training.phase import Phase
from training.pictures import FILM
from training.precision import attention_for
from training.share import Share
from training.skips import Skips
from training.speed import SpeedMeter, peak_tflops_of
from training.termination import Terminated, Termination
from training.tracked_clips import track_clips

SNAPSHOTS, TRAINED = "snapshots", "trained.json"
_TRAINED_ONLY = StateDictOptions(ignore_frozen_params=True, strict=False)
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


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
            phase: network and examples.
            loop: settings of the loop.
            folder: folder of the phase.
            accelerator: devices, precision, trackers.
            origin: state of another run that this one goes on from, for `trained.json`.

        Raises:
            UserError: there are no examples, or the batch cannot be divided among the processes.
        """
        self.phase, self.loop, self.folder, self.accelerator = phase, loop, folder, accelerator
        self.origin = origin
        phase.network.to(accelerator.device)
        _shard_by_units(accelerator, phase.units)
        on_cpu = accelerator.device.type == "cpu" and accelerator.scaler is None
        optimizer = make_optimizer(phase.network, loop, fused=on_cpu)
        self.network, self.optimizer = accelerator.prepare(phase.network, optimizer)
        self.trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.average = MovingAverage(self.trained, loop.ema_decay, on_cpu=loop.ema_on_cpu) if loop.ema_decay else None
        self.done, self.skips, self.termination = 0, Skips(), Termination()
        self.speed = SpeedMeter(accelerator.device, accelerator.num_processes, peak_tflops_of(accelerator))
        if (step := states.newest(self._states)) is not None:
            self._restore(step)

    def run(self, watch: StepWatcher | None = None) -> Path:
        """Train to the end and export.

        Args:
            watch: callback after every step.

        Returns:
            The folder of the result.

        Raises:
            UserError: several batches in a row have a loss or gradient that is not finite.
            Terminated: a process received SIGTERM, and the state is saved; after the last step, the result too.
        """
        result = self.folder / "result"
        accelerator = self.accelerator
        kernels = attention_for(accelerator.mixed_precision, accelerator.device)
        with self.termination.watched(), kernels, closing(self._batches()) as batches:
            self._export_missed()
            steps = zip(range(self.done, self.loop.steps), batches, strict=True)
            for step, examples in self.speed.waiting(steps):
                self._train(step, examples, watch)
            self.export(result)
        if self._over_all({"stops": self._stops()})["stops"] > 0:  # no further phase is begun
            raise Terminated(self.phase.name, self.done)
        return result

    def _train(self, step: int, examples: list[Any], watch: StepWatcher | None) -> None:
        """Run one step, with what is due after it: saving, validation, reports."""
        loop = self.loop
        with self.speed.counted():
            figures = self._step(step, examples)
        speeds = self.speed.figures(len(examples), figures.pop("units"))
        self.done = step + 1
        is_last, stops = self.done == loop.steps, figures.pop("stops") > 0
        if self.done % loop.save_every == 0 or is_last or stops:
            state_files.save(self._states, self.done, self._state(), loop.keep, self.accelerator)
        if stops and not is_last:
            raise Terminated(self.phase.name, self.done)
        if self._snapshot:
            self.export(self._snapshot)
        if self.done % loop.validate_every == 0 or is_last:
            figures |= self._validate()  # after saving the state: sampling needs additional memory
        self.accelerator.log(figures | speeds, step=self.done)
        if watch:
            watch(StepReport(self.phase.name, self.done, loop.steps, figures))

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
        return self.folder / SNAPSHOTS / states.folder_name(self.done) if is_due else None

    @property
    def _states(self) -> Path:
        return self.folder / states.STATES

    def _batches(self) -> Generator[list[Any]]:
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
            collate_fn=list,
            worker_init_fn=begin_reading,
        )

    def _step(self, step: int, examples: list[Any]) -> dict[str, float]:
        """Run one optimizer step on this process's share of the batch.

        Returns:
            The terms of the global batch; `stops`, the share of processes that received SIGTERM; and `units`, the
            size of a process's examples.
        """
        loop, accelerator = self.loop, self.accelerator
        set_seed(_seed_of(loop.seed, step, accelerator.process_index))  # for dropout inside the networks
        self.network.train()
        sums: dict[str, Tensor] = {}
        examples = sorted(examples, key=self.phase.size_of)  # a micro-batch is padded to its longest example
        for start in range(0, len(examples), loop.micro_batch):
            batch = self.phase.collate(examples[start : start + loop.micro_batch]).to(accelerator.device)
            last = start + loop.micro_batch == len(examples)
            with nullcontext() if last else accelerator.no_sync(self.network):
                with accelerator.autocast():  # accelerate puts it into the network itself, but not with FSDP2
                    terms = self.network(batch)
                accelerator.backward(terms["loss"].sum() / len(examples))
            for name, values_B in terms.items():
                sums[name] = sums.get(name, 0) + values_B.detach().float().sum() / len(examples)
        sums["stops"] = self._stops()
        sums["units"] = torch.tensor(float(sum(map(self.phase.size_of, examples))), device=accelerator.device)
        figures = self._over_all(sums)
        norm = _plain(accelerator.clip_grad_norm_(self.network.parameters(), loop.clip_norm))
        rate = learning_rate(loop, step)
        skipped = self.skips.judge(self.phase.name, step + 1, figures["loss"], norm, scale=self._scale())
        self._update(rate, skipped=skipped)
        return {**figures, "learning_rate": rate, "gradient_norm": norm, "skipped": self.skips.total}

    def _stops(self) -> Tensor:
        """Return 1 if this process received SIGTERM, else 0."""
        return torch.tensor(float(self.termination.is_asked), device=self.accelerator.device)

    def _scale(self) -> float:
        """Return the factor of the loss in this step; 1 without a loss scaler."""
        scaler = self.accelerator.scaler
        return float(scaler.get_scale()) if scaler else 1.0

    def _update(self, rate: float, *, skipped: bool) -> None:
        """Change the weights by the gradient; a skipped batch changes nothing but the loss scale, if there is one."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if not skipped or self.accelerator.scaler:  # a loss scaler needs the call to update its scale
            self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average and not skipped:
            self.average.step()

    def _over_all(self, sums: dict[str, Tensor]) -> dict[str, float]:
        """Return means over the global batch from this process's means."""
        stacked = self.accelerator.reduce(torch.stack(list(sums.values())), reduction="mean")
        return dict(zip(sums, stacked.tolist(), strict=True))

    def _validate(self) -> dict[str, float]:
        self.network.eval()
        looks = self.folder / "looks" / states.folder_name(self.done)
        with self._averaged(), torch.no_grad(), self.accelerator.autocast():
            own_looks = looks if self.accelerator.is_main_process else None
            found = self.phase.validate(self.network, self.accelerator.device, own_looks, Share.of(self.accelerator))
        if self.accelerator.is_main_process:
            track_clips(self.accelerator, looks / FILM, self.done)
        return {f"val/{name}": value for name, value in found.items()}

    def export(self, target: Path) -> None:
        """Write the checkpoint of the steps done so far, in the place of an earlier one. Collective call.

        An earlier one is from steps that a resumed run repeats.
        """
        with self._averaged():  # until the end: on a CPU the state aliases the weights
            state = cast(dict[str, Tensor], get_model_state_dict(self.network, options=_WHOLE))
            if self.accelerator.is_main_process:
                for left in (target, *target.parent.glob(f".{target.name}-*")):  # the latter by a run killed here
                    shutil.rmtree(left, ignore_errors=True)
                with writing(target) as part:
                    self.phase.export(part, state)
                    self._note_training(part)
        self.accelerator.wait_for_everyone()

    def _note_training(self, checkpoint: Path) -> None:
        """Add this phase to the phases that have trained a checkpoint, in `trained.json`."""
        earlier = read_note(checkpoint / TRAINED) or {"phases": []}
        this = {"phase": self.phase.name, "step": self.done, "steps": self.loop.steps}
        if self.origin:
            this["forked_from"] = self.origin
        write_json(checkpoint / TRAINED, {"phases": [*earlier["phases"], this]})

    def _averaged(self) -> AbstractContextManager[None]:
        """Put the averaged weights, if there are any, in the place of the last ones."""
        return self.average.in_place() if self.average else nullcontext()

    def _state(self) -> dict[str, Any]:
        network, optimizer = get_state_dict(self.network, self.optimizer.optimizer, options=_TRAINED_ONLY)
        state: dict[str, Any] = {"network": network, "optimizer": optimizer, "skips": self.skips.state()}
        if self.average:
            state["average"] = self.average.state()
        if self.accelerator.scaler:
            state["scaler"] = self.accelerator.scaler.state_dict()
        return state

    def _restore(self, step: int) -> None:
        """Restore a state; the settings are those of the loop, which may differ from those of a forked run's origin."""
        state, groups = self._state(), [dict(group) for group in self.optimizer.param_groups]
        state_files.load(self._states, step, state, optional=("average", "scaler"))
        set_state_dict(
            self.network,
            self.optimizer.optimizer,
            model_state_dict=state["network"],
            optim_state_dict=state["optimizer"],
            options=_TRAINED_ONLY,
        )
        for group, own in zip(self.optimizer.param_groups, groups, strict=True):
            group.update({name: value for name, value in own.items() if name != "params"})
        self.skips = Skips(**state["skips"])
        if self.average:  # without a saved one it begins at the saved weights
            self.average.load(state.get("average"), step - self.skips.total)
        if self.accelerator.scaler and "scaler" in state:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.done = step


def _shard_by_units(accelerator: Accelerator, units: Sequence[str]) -> None:
    """Have FSDP2 shard each unit by itself, reduce gradients in float32, and leave the outputs of a unit as they are.

    Without a policy on the command line accelerate shards the network as one unit, gathered whole in every step; and it
    reduces, and casts the loss, in the precision of autocast. The networks compute their loss in float32 themselves;
    what one unit gives to another has to stay in the precision of both.
    """
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is None:
        return
    plugin.auto_wrap_policy, plugin.transformer_cls_names_to_wrap = transformer_auto_wrap_policy, list(units)
    if plugin.mixed_precision_policy is not None:
        plugin.mixed_precision_policy = replace(
            plugin.mixed_precision_policy, reduce_dtype=torch.float32, output_dtype=None
        )


def _seed_of(*numbers: int) -> int:
    """Derive a seed, in numpy's range, from numbers."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:4], "big")


def _plain(norm: Tensor | float | None) -> float:
    """Return a norm as a float; a norm sharded over devices is a distributed tensor."""
    if norm is None:
        return 0.0
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
