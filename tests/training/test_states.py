"""States written beside training: copies, kills, full disks and Ctrl-C while one is being written."""

from __future__ import annotations

import json
import math
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import training.states
from pipeline.core.errors import UserError
from tests.training.test_trainer import KilledError, Line, Rows, Sum, loop, same, trained
from training.phase_folder import newest
from training.processes import new_accelerator
from training.states import StateWriter, load_state
from training.trainer import StepReport, Trainer


def state_of(value: float, size: int = 50_000) -> dict[str, Any]:
    return {"network": {"weight": torch.full((size,), value)}, "skips": {"total": int(value)}}


def test_a_state_is_that_of_its_step_although_training_goes_on(tmp_path: Path) -> None:
    state = state_of(1.0, 5_000_000)
    with StateWriter(tmp_path, 2, new_accelerator()) as states:
        states.save(1, state)
        state["network"]["weight"].fill_(9.0)
        assert newest(tmp_path) is None  # it is still being written
    found = state_of(0.0, 5_000_000)
    load_state(tmp_path, 1, found)
    assert found["network"]["weight"].eq(1.0).all()
    assert found["skips"] == {"total": 1}


def test_a_run_killed_in_its_last_validation_ends_with_that_validation(tmp_path: Path) -> None:
    class Killed(Sum):
        def validate(self, *_: object) -> dict[str, float]:
            raise KilledError

    class Infinite(Sum):
        def validate(self, *given: Any) -> dict[str, float]:
            return {**super().validate(*given), "overflown": math.inf}

    with pytest.raises(KilledError):
        trained(tmp_path, loop(validate_every=50), Killed())
    assert newest(tmp_path / "states") == 20
    trained(tmp_path, loop(validate_every=50), Infinite())
    noted = json.loads((tmp_path / "result" / "trained.json").read_text())["validation"]["sum"]
    assert noted.keys() == {"weight"}, "JSON has no number for what is not finite"


def test_old_states_are_removed_and_partial_states_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "states"
    (folder / ".step-00000005").mkdir(parents=True)
    (folder / ".step-00000005" / "half").touch()
    trained(tmp_path / "run", loop(keep=2))
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000015", "step-00000020"]


def test_a_state_of_another_network_or_optimizer_is_refused_with_the_remedy(tmp_path: Path) -> None:
    other = Line()
    other.layer.bias.requires_grad_(False)  # one trained parameter in one group instead of two
    trained(tmp_path, loop(steps=5), Sum(other))
    shutil.rmtree(tmp_path / "result")
    with pytest.raises(UserError, match=r"step-00000005 cannot be read: Missing key .* remove .*states to train"):
        trained(tmp_path, loop(steps=5))


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_a_state_that_was_cut_short_is_named_and_without_it_the_one_before_continues(tmp_path: Path, name: str) -> None:
    whole = trained(tmp_path / "run", loop(ema_decay=0.9))
    shutil.rmtree(tmp_path / "run" / "result")
    path = tmp_path / "run" / "states" / "step-00000020"
    (path / name).write_bytes((path / name).read_bytes()[:100])
    with pytest.raises(UserError, match=rf"{path} cannot be read: .* remove it to continue from the state before"):
        trained(tmp_path / "run", loop(ema_decay=0.9))
    shutil.rmtree(path)
    assert same(trained(tmp_path / "run", loop(ema_decay=0.9)), whole)


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Let no process write larger files."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_at_a_state_is_named_and_leaves_the_state_before(tmp_path: Path) -> None:
    states = StateWriter(tmp_path, 2, new_accelerator())
    with states:
        states.save(1, state_of(1.0))
    with full_disk(8_000):
        states.save(2, state_of(2.0))
        with pytest.raises(UserError, match=r"a state in .* cannot be written .*; free space and run the same"):
            states.wait()
    assert newest(tmp_path) == 1
    with states:
        states.save(2, state_of(2.0))
    assert newest(tmp_path) == 2


class Wide(Line):
    """The same network with a layer that makes its states large."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.wide = nn.Linear(4, size)

    def forward(self, batch: Rows) -> dict[str, Tensor]:
        terms = super().forward(batch)
        return {**terms, "loss": terms["loss"] + self.wide(batch.rows_BD).mean(dim=1).square()}


def test_a_disk_that_fills_up_ends_the_run_soon_and_the_same_command_resumes_exactly(tmp_path: Path) -> None:
    whole, done = trained(tmp_path / "whole", loop(), Sum(Wide(10))), list[int]()

    def watch(report: StepReport) -> None:
        done.append(report.step)
        time.sleep(0.02)

    begun = Trainer(Sum(Wide(10)), loop(), tmp_path / "full", new_accelerator())
    with full_disk(8_000), pytest.raises(UserError, match="free space"):
        begun.run(watch)
    assert 5 <= done[-1] < 10  # the state of step 5 failed, and that of step 10 was not waited for
    assert newest(tmp_path / "full" / "states") is None
    assert same(trained(tmp_path / "full", loop(), Sum(Wide(10))), whole)


KILLED = """
import sys
from pathlib import Path
from tests.training.test_states import Wide
from tests.training.test_trainer import Sum, loop, trained
trained(Path(sys.argv[1]), loop(steps=15), Sum(Wide(400_000)))
"""


@pytest.mark.slow
def test_killed_while_a_state_is_written_it_resumes_from_the_one_before_to_the_bit(tmp_path: Path) -> None:
    folder = tmp_path / "killed" / "states"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "killed")], text=True) as process:
        while not (folder / ".step-00000010").exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert (folder / ".step-00000010").exists()
    assert newest(folder) == 5
    again = Trainer(Sum(Wide(400_000)), loop(steps=15), tmp_path / "killed", new_accelerator())
    assert again.done == 5
    end = load_file(again.run() / "line.safetensors")
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000010", "step-00000015"]
    assert same(end, trained(tmp_path / "whole", loop(steps=15), Sum(Wide(400_000))))


def test_a_second_ctrl_c_does_not_wait_for_the_state_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, write = threading.Event(), training.states.write_checkpoint

    def write_late(*given: Any, **named: Any) -> Any:
        goes_on.wait(30)
        return write(*given, **named)

    def press_twice(report: StepReport) -> None:
        if report.step == 6:
            signal.raise_signal(signal.SIGINT)
            time.sleep(1.1)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(training.states, "write_checkpoint", write_late)
    begun = Trainer(Sum(), loop(), tmp_path, new_accelerator())
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        begun.run(press_twice)
    assert time.monotonic() - started < 10
    assert newest(tmp_path / "states") is None
    goes_on.set()
    begun.states.wait()  # so that nothing is left of this test
