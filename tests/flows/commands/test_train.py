"""`animegamer train` and `animegamer recipe` as a user calls them, and the processes behind `train all`."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.train_run import Processes, TrainRequest
from models.checkpoint import Checkpoint
from tests.support.networks.small_run import small_dataset
from tests.support.networks.tiny_models import copy_of_tiny

SMALL = """
[shot.warm_up]
steps = 0
[shot.joint]
steps = 3
batch_size = 2
micro_batch = 2
save_every = 1
[game.loop]
steps = 2
[game.windows]
most_turns = 3
[adapt.loop]
steps = 1
[validation]
pictures = 0
clips = 1
denoising_steps = 2
"""
SAVED_BY_SIGNALS = SMALL.replace("steps = 3", "steps = 200").replace(
    "save_every = 1", "save_every = 500\nvalidate_every = 5"
)
ONE_STEP = re.sub(r"steps = [23]", "steps = 1", SMALL)
SHARED = re.sub(
    r"(?m)^(\[(game|adapt)\.loop\])$", r"\1\nmicro_batch = 2", ONE_STEP.replace("micro_batch = 2", "micro_batch = 1")
)
"""One step of batches that two processes share."""


def called(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, words)])
    return result.exit_code, result.output


def test_a_phase_becomes_a_command() -> None:
    request = TrainRequest(
        data=("s3://bucket/set", "other=2"),
        out=Path("run"),
        recipe="full",
        ablation="linear",
        features=Path("encoded"),
        accelerate=Path("eight.yaml"),
    )
    launched = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "eight.yaml"]
    data = "--data s3://bucket/set --data other=2"
    asked = f"-m flows.cli train game {data} --out run --recipe full --ablation linear --features encoded"
    assert request.command("game") == [*launched, *asked.split(), "--tracker", "tensorboard"]


def test_machines_meet_at_a_port_of_their_own_for_each_part() -> None:
    request = TrainRequest(
        data=("set",), out=Path("run"), accelerate=Path("two.yaml"), machine_rank=1, main_address="node-0:41000"
    )
    words = "--machine_rank 1 --main_process_ip node-0 --main_process_port"
    for part, port in (("shot", 41001), ("game", 41002)):
        assert f"--config_file two.yaml {words} {port} -m flows.cli" in " ".join(request.command(part))


def test_a_run_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "run" / "joint" / "states").mkdir(parents=True)
    reading, writing = os.pipe()
    os.write(writing, SMALL.encode())
    os.close(writing)
    without_start = ("--config", str(tmp_path / "small.toml"), "--from", str(tmp_path / "gone"))
    for part, words, said in (
        ("shot", ("--machine-rank", "1"), "--machine-rank and --main-address go with --accelerate"),
        ("shot", ("--accelerate", "no.yaml"), "no.yaml does not exist; `accelerate config --config_file FILE` writes"),
        ("shot", ("--accelerate", "no.yaml", "--main-address", "a:b"), "main_address"),
        ("game", without_start, "joint/result does not exist yet: run `animegamer train shot` first"),
        # read once from a pipe; the default recipe wants longer windows
        ("game", ("--config", f"/dev/fd/{reading}"), "joint/result does not exist yet"),
    ):
        code, text = called("train", part, "--data", small_dataset(), "--out", tmp_path / "run", *words)
        assert (code != 0, said in " ".join(text.split())) == (True, True), text
    os.close(reading)


@pytest.mark.slow
def test_a_launcher_leaves_its_processes_the_time_for_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "from torch.distributed.launcher.api import LaunchConfig as C; print(C(1, 1, 1).shutdown_timeout)"
    monkeypatch.delenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", raising=False)
    assert Processes().run([sys.executable, "-c", shown]) == (0, "540\n")
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "900")
    assert Processes().run([sys.executable, "-c", shown]) == (0, "900\n")


def train(part: str, folder: Path, recipe: str, *words: str) -> subprocess.Popen[str]:
    """`train PART` under way in this folder, from a new tiny checkpoint or from where it was."""
    (folder / "small.toml").write_text(recipe)
    start = folder / "start"
    if not start.exists():
        copy_of_tiny(start)
    options = ["--data", str(small_dataset()), "--out", "run", "--from", str(start), "--config", "small.toml"]
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "train", part, *options, *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(Path.cwd()), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def assert_all_phases_end(process: subprocess.Popen[str], folder: Path) -> None:
    said, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors[-3000:]
    assert "warm-up: skipped, steps is 0" in errors
    assert said.splitlines()[-1] == "run/adapt/result"
    assert Checkpoint.open(folder / "run" / "adapt" / "result").config.size == "tiny"


def stopped_by(sent: signal.Signals, process: subprocess.Popen[str], folder: Path) -> tuple[int, str]:
    """Send a signal to the group of a process at step 5, as a terminal does. Return the saved step and the messages."""
    assert process.stderr
    for line in process.stderr:
        if "joint, step 5:" in line:
            os.killpg(process.pid, sent)
            break
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 128 + sent, errors[-3000:]
    (state,) = (folder / "run" / "joint" / "states").iterdir()
    return int(state.name.removeprefix("step-")), errors


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_saves_the_step_in_progress(tmp_path: Path) -> None:
    step, errors = stopped_by(signal.SIGINT, train("shot", tmp_path, SAVED_BY_SIGNALS), tmp_path)
    assert step in (5, 6, 7)
    assert f"joint: stopped by Ctrl-C; the state of step {step} is saved; the same command resumes from it\n" in errors
    assert "Traceback" not in errors


@pytest.mark.nightly
def test_a_signal_to_all_phases_saves_the_phase_in_progress_and_the_same_command_goes_on(tmp_path: Path) -> None:
    step, errors = stopped_by(signal.SIGTERM, train("all", tmp_path, SAVED_BY_SIGNALS), tmp_path)
    assert f"joint: stopped by SIGTERM; the state of step {step} is saved" in errors
    assert "stopped by SIGTERM; the same command resumes\n" in errors
    assert not (tmp_path / "run" / "game").exists()
    # fewer steps: those of a phase under way may change
    process = train("all", tmp_path, SAVED_BY_SIGNALS.replace("steps = 200", f"steps = {step + 1}"))
    assert_all_phases_end(process, tmp_path)


@pytest.mark.nightly
def test_all_phases_on_two_machines(tmp_path: Path) -> None:
    launch = (Path(__file__).parents[3] / "training" / "launch" / "2x8-gpus-ddp.yaml").read_text()
    (tmp_path / "two.yaml").write_text(launch.replace("num_processes: 16", "num_processes: 2"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("--accelerate", "two.yaml", "--main-address", f"127.0.0.1:{port}")
    machines = [train("all", tmp_path, SHARED, *words, "--machine-rank", rank) for rank in "01"]
    for machine in machines:
        said, errors = machine.communicate(timeout=900)
        assert machine.returncode == 0, errors[-3000:]
        assert said.splitlines()[-1] == "run/adapt/result"
    assert Checkpoint.open(tmp_path / "run" / "adapt" / "result").config.size == "tiny"
