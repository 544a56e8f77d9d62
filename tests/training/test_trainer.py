"""Training loop on a network of one layer: steps, resumption and stops. Whole phases are in `test_run.py`."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.prompt_batch import TensorBatch
from pipeline.core.errors import UserError
from training.config import LoopSettings
from training.data.checks import check_batch
from training.data.order import Position, generator
from training.learner import MOST_IN_A_ROW
from training.phase import Share
from training.phase_folder import newest
from training.processes import new_accelerator
from training.termination import Terminated
from training.trainer import StepReport, Trainer


@dataclass(frozen=True, eq=False)
class Rows(TensorBatch):
    """Batch of rows."""

    rows_BD: Tensor


@dataclass(frozen=True)
class Noises:
    """Dataset of pure noise."""

    count: int = 7

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: Position) -> Tensor:
        return torch.randn(4, generator=generator(0, place))


class Line(nn.Module):
    """Network that learns a sum; with dropout, so that randomness inside the network matters."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.dropout = nn.Linear(4, outputs), nn.Dropout(0.2)

    def forward(self, batch: Rows) -> dict[str, Tensor]:
        error_B = (self.layer(self.dropout(batch.rows_BD))[:, 0] - batch.rows_BD.sum(dim=1)).square()
        return {"loss": error_B, "double": 2 * error_B}


@dataclass
class Sum:
    """Phase that trains the network."""

    network: nn.Module = field(default_factory=Line)
    examples: Any = Noises()
    name: str = "sum"
    units: tuple[str, ...] = ()
    varied: bool = False
    before_step: Callable[[], None] = lambda: None

    def size_of(self, example: Tensor) -> int:
        return int(1000 * example[0])

    def collate(self, examples: Sequence[Tensor]) -> Rows:
        self.before_step()
        return Rows(torch.stack(list(examples)))

    def validate(self, network: nn.Module, device: torch.device, pictures: Path, share: Share) -> dict[str, float]:  # noqa: ARG002
        return {"weight": float(network.layer.weight.sum())}

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        save_file(dict(state), folder / "line.safetensors")


def loop(**changes: Any) -> LoopSettings:
    defaults = {
        "steps": 20,
        "batch_size": 4,
        "micro_batch": 4,
        "learning_rate": 0.05,
        "save_every": 5,
        "validate_every": 10,
    }
    return LoopSettings.model_validate({"learning_rate": 0.05, **defaults, **changes})


def trained(folder: Path, settings: LoopSettings, phase: Sum | None = None) -> dict[str, Tensor]:
    result = Trainer(phase or Sum(), settings, folder, new_accelerator()).run()
    return load_file(result / "line.safetensors")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


class KilledError(Exception):
    """Simulated kill: no object of the process is used afterwards."""


@pytest.mark.parametrize(("decay", "optimizer"), [(0.0, "adamw"), (0.9, "adamw"), (0.9, "muon")])
def test_a_run_stopped_anywhere_is_resumed_to_the_bit(tmp_path: Path, decay: float, optimizer: str) -> None:
    settings, outputs = loop(ema_decay=decay, optimizer=optimizer), 4 if optimizer == "muon" else 1  # not for rows
    whole = trained(tmp_path / "whole", settings, Sum(Line(outputs)))
    for stop in (3, 12):
        calls = iter(range(stop))

        def step(calls: Any = calls) -> None:
            if next(calls, None) is None:
                raise KilledError

        with pytest.raises(KilledError):
            trained(tmp_path / "stopped", settings, Sum(Line(outputs), before_step=step))
    assert newest(tmp_path / "stopped" / "states") == 10
    assert same(trained(tmp_path / "stopped", settings, Sum(Line(outputs))), whole)


@pytest.mark.parametrize(("sent", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_a_signal_saves_after_the_step_and_the_resumed_run_is_exact(
    tmp_path: Path, sent: signal.Signals, name: str
) -> None:
    whole = trained(tmp_path / "whole", loop())
    handler = signal.getsignal(sent)
    stopped = Trainer(Sum(), loop(), tmp_path / "stopped", Accelerator(cpu=True))
    with pytest.raises(Terminated, match=f"sum: stopped by {name}; the state of step 4 is saved") as stop:
        stopped.run(lambda report: signal.raise_signal(sent) if report.step == 3 else None)
    assert stop.value.code == 128 + sent
    assert newest(tmp_path / "stopped" / "states") == 4
    assert signal.getsignal(sent) is handler
    assert same(trained(tmp_path / "stopped", loop()), whole)


def test_ctrl_c_while_the_first_examples_are_read_ends_before_the_step(tmp_path: Path) -> None:
    steps: list[None] = []

    class Interrupted(Noises):
        def __getitem__(self, place: Position) -> Tensor:
            signal.raise_signal(signal.SIGINT)
            return super().__getitem__(place)

    phase = Sum(examples=Interrupted())
    phase.network.register_forward_pre_hook(lambda *_: steps.append(None))
    begun = Trainer(phase, loop(), tmp_path, new_accelerator())
    with pytest.raises(Terminated, match="sum: stopped by Ctrl-C; no step was done"):
        begun.run()
    assert not steps
    assert newest(tmp_path / "states") is None


def test_ctrl_c_that_a_launcher_passes_on_counts_once_and_a_later_one_stops_at_once(tmp_path: Path) -> None:
    said: list[str] = []

    def press(seconds: float) -> Callable[[StepReport], None]:
        def pressed(_: StepReport) -> None:
            signal.raise_signal(signal.SIGINT)
            time.sleep(seconds)
            signal.raise_signal(signal.SIGINT)

        return pressed

    with pytest.raises(Terminated, match="the state of step 2 is saved"):
        Trainer(Sum(), loop(), tmp_path, new_accelerator()).run(press(0.01), said.append)
    assert said == ["stopping when the step in progress is done and saved; press Ctrl-C again to stop at once"]
    with pytest.raises(KeyboardInterrupt):
        Trainer(Sum(), loop(), tmp_path, new_accelerator()).run(press(1.1))
    assert newest(tmp_path / "states") == 2


def test_a_snapshot_missed_by_sigterm_is_made_by_the_resumed_run(tmp_path: Path) -> None:
    settings, snapshots = loop(snapshot_every=4), tmp_path / "stopped" / "snapshots"
    trained(tmp_path / "whole", settings)
    stopped = Trainer(Sum(), settings, tmp_path / "stopped", Accelerator(cpu=True))
    with pytest.raises(Terminated):
        stopped.run(lambda report: signal.raise_signal(signal.SIGTERM) if report.step == 3 else None)
    assert not snapshots.exists()
    trained(tmp_path / "stopped", settings)
    for whole in (tmp_path / "whole" / "snapshots").iterdir():
        assert same(*(load_file(each / "line.safetensors") for each in (snapshots / whole.name, whole)))
    assert len(list(snapshots.iterdir())) == 4


def test_sigterm_in_the_last_step_begins_no_further_phase(tmp_path: Path) -> None:
    finished = Trainer(Sum(), loop(), tmp_path, Accelerator(cpu=True))
    with pytest.raises(Terminated, match="the state of step 20"):
        finished.run(lambda report: signal.raise_signal(signal.SIGTERM) if report.step == 20 else None)
    assert (tmp_path / "result" / "line.safetensors").exists()


def test_reading_processes_outlive_signals_and_hold_no_open_files(tmp_path: Path) -> None:
    open_files: list[int] = []

    def stop_them(report: StepReport) -> None:
        open_files.append(len(list(Path("/dev/fd").iterdir())))
        for process in multiprocessing.active_children():
            os.kill(process.pid or 0, signal.SIGTERM)
            os.kill(process.pid or 0, signal.SIGINT)

    settings = loop(loader_workers=2, batch_size=200, micro_batch=200)
    Trainer(Sum(), settings, tmp_path, Accelerator(cpu=True)).run(stop_them)
    assert len(open_files) == 20
    assert max(open_files) - len(list(Path("/dev/fd").iterdir())) < 100


class Service:
    """Service with a thread of its own, as Prefect keeps two: its exit call fails in a fork, which lacks that."""

    def __init__(self) -> None:
        self.process = os.getpid()
        threading._register_atexit(self.stop)  # type: ignore[attr-defined]

    def stop(self) -> None:
        assert os.getpid() == self.process, "no thread to stop in a fork"


def test_reading_processes_end_well_beside_services_of_the_training_process(tmp_path: Path) -> None:
    Service()
    Trainer(Sum(), loop(loader_workers=1), tmp_path, Accelerator(cpu=True)).run(lambda _: None)


def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path: Path) -> None:
    ends = []
    for most in (4, 1, 3):  # 3 leaves a micro-batch of 1
        phase = Sum(Line())
        phase.network.dropout.p = 0.0
        ends.append(trained(tmp_path / f"{most}", loop(micro_batch=most), phase))
    whole, *others = ends
    assert all(torch.allclose(whole[name], each[name], atol=1e-6) for each in others for name in whole)


def test_examples_of_similar_size_share_a_micro_batch(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    class Watched(Sum):
        def collate(self, examples: Sequence[Tensor]) -> Rows:
            seen.append([self.size_of(example) for example in examples])
            return super().collate(examples)

    trained(tmp_path, loop(steps=3, micro_batch=2), Watched())
    steps = [seen[step] + seen[step + 1] for step in (0, 2, 4)]
    assert all(sizes == sorted(sizes) for sizes in steps)
    assert len({tuple(sizes) for sizes in steps}) == 3


def test_states_and_validations_are_due_by_minutes_too_and_change_no_weight(tmp_path: Path) -> None:
    due: list[tuple[int, bool]] = []
    states = tmp_path / "timed" / "states"
    timed = loop(
        steps=12, save_every=100, validate_every=100, save_minutes=0.4 / 60, validate_minutes=0.4 / 60, keep=12
    )
    slow = Sum(before_step=lambda: time.sleep(0.06))  # so a step or two before the last are due

    def watch(report: StepReport) -> None:
        due.append((report.step, "val/weight" in report.figures))

    result = Trainer(slow, timed, states.parent, new_accelerator()).run(watch)
    saved = sorted(int(path.name.removeprefix("step-")) for path in states.iterdir())
    validated = [step for step, is_validated in due if is_validated]
    for steps in (saved, validated):
        assert steps[-1] == 12
        assert 2 <= len(steps) < 12
    assert same(load_file(result / "line.safetensors"), trained(tmp_path / "plain", loop(steps=12)))


class Kinds(Line):
    """The same network, with the loss of even and of odd rows apart, and of a kind that never occurs."""

    def forward(self, batch: Rows) -> dict[str, Tensor]:
        terms = super().forward(batch)
        even_B = (batch.rows_BD[:, 0] > 0).float()
        kinds = {"even": even_B, "odd": 1 - even_B, "none": 0 * even_B}
        terms |= {f"share/{kind}": share_B for kind, share_B in kinds.items()}
        return terms | {f"loss/{kind}": terms["loss"].detach() * share_B for kind, share_B in kinds.items()}


def test_the_loss_of_a_kind_is_the_mean_of_its_examples(tmp_path: Path) -> None:
    reports: list[StepReport] = []
    Trainer(Sum(Kinds()), loop(steps=3, micro_batch=2), tmp_path, new_accelerator()).run(reports.append)
    for figures in (report.figures for report in reports):
        assert not {"loss/none", "share/even"} & figures.keys()
        if {"loss/even", "loss/odd"} <= figures.keys():
            low, high = sorted((figures["loss/even"], figures["loss/odd"]))
            assert low <= figures["loss"] <= high


def test_reports_have_the_documented_figures(tmp_path: Path) -> None:
    reports: list[Any] = []
    Trainer(Sum(), loop(), tmp_path, Accelerator(cpu=True)).run(reports.append)
    assert [report.step for report in reports] == list(range(1, 21))
    assert all(report.figures["double"] == pytest.approx(2 * report.figures["loss"]) for report in reports)
    assert [report.step for report in reports if "val/weight" in report.figures] == [10, 20]
    assert reports[-1].figures["loss"] < reports[0].figures["loss"] / 2


def test_a_batch_that_is_not_finite_is_skipped_and_counted_and_resume_stays_exact(tmp_path: Path) -> None:
    class Spoiled(Sum):
        def collate(self, examples: Sequence[Tensor]) -> Rows:
            batch = super().collate(examples)
            return Rows(batch.rows_BD * math.nan) if float(batch.rows_BD[0, 0]) < -0.7 else batch

    reports: list[Any] = []
    whole = Trainer(Spoiled(), loop(ema_decay=0.9), tmp_path / "whole", Accelerator(cpu=True))
    end = load_file(whole.run(reports.append) / "line.safetensors")
    skipped = [report.figures["skipped"] for report in reports]
    assert 0 < skipped[-1] < 20
    assert skipped[9] > 0  # the resumed state has skips
    assert all(torch.isfinite(tensor).all() for tensor in end.values())
    calls = iter(range(12))

    def step() -> None:
        if next(calls, None) is None:
            raise KilledError

    with pytest.raises(KilledError):
        trained(tmp_path / "stopped", loop(ema_decay=0.9), Spoiled(before_step=step))
    again = Trainer(Spoiled(), loop(ema_decay=0.9), tmp_path / "stopped", Accelerator(cpu=True))
    assert again.done == 10
    assert same(load_file(again.run() / "line.safetensors"), end)
    assert again.learner.skips == whole.learner.skips


def test_batches_in_a_row_that_are_not_finite_end_the_run_with_what_to_do(tmp_path: Path) -> None:
    phase = Sum()
    calls = iter(range(7))

    def break_it() -> None:
        if next(calls, None) is None:
            phase.network.layer.weight.data.fill_(math.nan)

    phase.before_step = break_it
    said = r"sum: 10 batches in a row were not finite, the last at step 17 .*rate.*--fork-from"
    with pytest.raises(UserError, match=said):
        trained(tmp_path, loop(), phase)


class Steep(Line):
    """The same network with a loss so large that its scaled gradient overflows even in float32."""

    def forward(self, batch: Rows) -> dict[str, Tensor]:
        return {name: 1e9 * loss_B for name, loss_B in super().forward(batch).items()}


class Scaling(Accelerator):
    """Accelerator with the loss scaler of fp16, which accelerate gives to GPUs only; without autocast."""

    mixed_precision = "fp16"

    def trainer(self, folder: Path) -> Trainer:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        settings = loop(steps=80, schedule="constant", ema_decay=0.9, save_every=80)
        trainer = Trainer(Sum(Steep()), settings, folder, self)
        self.native_amp = True  # gradients are unscaled before they are clipped
        return trainer


def test_overflows_of_a_loss_scaler_are_not_counted_and_resume_is_exact(tmp_path: Path) -> None:
    reports: list[Any] = []
    whole = Scaling(cpu=True).trainer(tmp_path / "whole")
    end = load_file(whole.run(reports.append) / "line.safetensors")
    overflown = [report.step for report in reports if not math.isfinite(report.figures["gradient_norm"])]
    assert overflown[: 2 * MOST_IN_A_ROW] == list(range(1, 2 * MOST_IN_A_ROW + 1))
    assert overflown[-1] < 60  # the scale has been found
    assert reports[-1].figures["skipped"] == 0
    assert end["layer.weight"].sum() > Line().layer.weight.sum() + 1  # on its way to 4
    begun = Scaling(cpu=True).trainer(tmp_path / "begun")
    with pytest.raises(Terminated):
        begun.run(lambda report: signal.raise_signal(signal.SIGTERM) if report.step == 20 else None)
    again = Scaling(cpu=True).trainer(tmp_path / "begun")
    assert again.done == 21
    assert same(load_file(again.run() / "line.safetensors"), end)


def test_an_indivisible_batch_is_refused() -> None:
    for batch, processes, nearest in ((4, 3, "3 or 6"), (2, 4, "4"), (80, 6, "78 or 84")):
        with pytest.raises(
            UserError, match=f"{processes} processes .* a batch of {batch}: set its batch_size to {nearest}"
        ):
            check_batch("sum", loop(batch_size=batch), processes)
    check_batch("sum", loop(micro_batch=3), 2)
