"""Launch files: read by accelerate's own loader, started with two processes on a CPU; the SLURM script in a real shell.

SLURM itself is not run: `srun` and `scontrol` are small programs that write down their words.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType

from pipeline.core.errors import UserError
from tests.support.networks.small_run import small_dataset, small_recipe
from training.data.checks import check_batch
from training.phases.game import GameTraining
from training.phases.shot import ShotNetworks
from training.recipes import PHASES, loop_of, read_recipe

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "training" / "launch").glob("*.yaml"))
KINDS = {"gpu": DistributedType.NO, "ddp": DistributedType.MULTI_GPU, "fsdp2": DistributedType.FSDP}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_accelerate_reads_the_file_as_its_name_says(path: Path) -> None:
    read = load_config_from_file(str(path))
    assert isinstance(read, ClusterConfig)
    count, kind = path.stem.replace("gpus-", "gpu-").split("-")[0], path.stem.split("-")[-1]
    machines = 2 if count.startswith("2x") else 1
    assert read.num_machines == machines
    assert read.num_processes == machines * int(count[-1])
    assert read.distributed_type == KINDS[kind]
    given = ["--config_file", str(path), "--machine_rank", "1", "--main_process_ip", "node-0", "-m", "flows.cli"]
    launched, *_ = _validate_launch_command(launch_command_parser().parse_args(given))
    assert (launched.use_fsdp, launched.multi_gpu) == (kind == "fsdp2", kind == "ddp")
    assert (launched.num_machines, launched.machine_rank, launched.main_process_ip) == (machines, 1, "node-0")
    if kind == "fsdp2":
        assert launched.fsdp_version == 2
        assert launched.fsdp_auto_wrap_policy == "TRANSFORMER_BASED_WRAP"
        assert set(launched.fsdp_transformer_layer_cls_to_wrap.split(",")) == blocks()


def test_batches_for_two_machines_are_shared_by_sixteen_processes() -> None:
    recipe = read_recipe("full", path=ROOT / "training" / "launch" / "two-machines.toml")
    for phase in PHASES:
        check_batch(phase, loop_of(recipe, phase), 16)
    with pytest.raises(UserError, match="16 processes cannot share a batch of 24"):
        check_batch("joint", read_recipe("full").shot.joint, 16)


def blocks() -> set[str]:
    """Names of the blocks that are sharded by themselves in any phase of the model."""
    return {*ShotNetworks.units.fget(SimpleNamespace(encoder="one")), *GameTraining.units}


def launch(config: Path, out: Path, *options: str, machine: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start `accelerate launch` with one of the files, for two processes and on the CPU; save by SIGTERM alone."""
    loop = {"save_every": 100}
    recipe = small_recipe(
        shot={"warm_up": loop, "joint": {**loop, "steps": 12}}, game={"loop": loop}, adapt={"loop": loop}
    )
    described = out.with_suffix(".json")
    described.write_text(recipe.model_dump_json())
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    command += ["--num_processes", "2", *(machine or ("--main_process_port", "0"))]
    command += ["-m", "tests.support.networks.training_process", str(small_dataset()), str(out), str(described)]
    return subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(lambda process: process.terminate(), id="SIGTERM to the launcher"),
        pytest.param(lambda process: os.killpg(process.pid, signal.SIGINT), id="Ctrl-C of a terminal"),
    ],
)
def test_ddp_started_by_its_file_saves_when_it_is_stopped_and_goes_on(
    tmp_path: Path, stop: Callable[[subprocess.Popen[str]], None]
) -> None:
    out = tmp_path / "run"
    process = launch(ROOT / "training" / "launch" / "8-gpus-ddp.yaml", out)
    assert process.stdout
    for line in process.stdout:
        if line.startswith("joint 2 "):
            stop(process)
            break
    process.communicate(timeout=300)
    assert process.returncode != 0
    saved = sorted(path.name for path in (out / "joint" / "states").glob("step-*"))
    assert len(saved) == 1
    process = launch(ROOT / "training" / "launch" / "8-gpus-ddp.yaml", out)
    steps, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors[-3000:]
    assert f"joint {int(saved[0].removeprefix('step-')) + 1} " in steps
    assert "joint 1 " not in steps
    assert (out / "adapt" / "result").is_dir()


@pytest.mark.nightly
def test_fsdp2_started_by_its_file_shards_every_block(tmp_path: Path) -> None:
    process = launch(ROOT / "training" / "launch" / "8-gpus-fsdp2.yaml", tmp_path / "run", "--sharded")
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors[-3000:]
    assert "units of joint: ['FSDPCogVideoXBlock'," in errors
    assert "FSDPMistralDecoderLayer" in errors
    assert (tmp_path / "run" / "adapt" / "result").is_dir()


@pytest.mark.nightly
def test_two_launchers_started_as_two_machines_share_the_weights(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = ["--main_process_ip", "127.0.0.1", "--main_process_port", port]
    config, out = ROOT / "training" / "launch" / "2x8-gpus-fsdp2.yaml", tmp_path / "run"
    machines = [launch(config, out, "--sharded", machine=["--machine_rank", rank, *meeting]) for rank in ("0", "1")]
    for errors in [process.communicate(timeout=900)[1] for process in machines]:
        assert "Error" not in errors, errors[-3000:]
    assert [process.returncode for process in machines] == [0, 0]
    assert (out / "adapt" / "result").is_dir()


def slurm(folder: Path, command: str, before: str = ":") -> subprocess.Popen[str]:
    """Start the SLURM script where `srun` runs its words; `animegamer` and what comes `before` are shell programs."""
    programs = {
        "bin/srun": 'echo "srun $1" >> log; shift; export SLURM_NODEID=3; exec "$@"',
        "bin/scontrol": f'if [ "$1" = show ]; then {before}; echo node-0; echo node-1; '
        'else echo "scontrol $*" >> log; fi',
        ".venv/bin/animegamer": f'echo "animegamer $*" >> log\n{command}',
    }
    for name, program in programs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!/bin/bash\n{program}\n")
        (folder / name).chmod(0o755)
    bash = shutil.which("bash")
    assert bash
    return subprocess.Popen(
        [bash, str(ROOT / "training" / "launch" / "slurm.sh"), "two.yaml", "--data", "my data", "--out", "run"],
        cwd=folder, text=True, start_new_session=True,
        env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_JOB_ID": "42"},
    )  # fmt: skip


def lines(folder: Path, first: str) -> Sequence[str]:
    log = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    return [line for line in log if line.startswith(first)]


def test_slurm_passes_sigterm_on_waits_for_the_state_and_requeues(tmp_path: Path) -> None:
    waits = 'trap "sleep 1; echo saved >> log; exit 1" TERM\nwhile true; do sleep 0.1; done'
    process = slurm(tmp_path, waits)
    until = time.monotonic() + 30
    while not lines(tmp_path, "animegamer"):
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    log = (tmp_path / "log").read_text().splitlines()
    assert log[-2:] == ["saved", "scontrol requeue 42"]
    assert len(lines(tmp_path, "animegamer")) == 1


@pytest.mark.parametrize(("code", "requeued"), [(143, ["scontrol requeue 42"]), (7, [])])
def test_slurm_requeues_what_was_stopped_and_not_what_failed(tmp_path: Path, code: int, requeued: list[str]) -> None:
    assert slurm(tmp_path, f"exit {code}").wait(30) == code
    assert lines(tmp_path, "scontrol") == requeued
    assert len(lines(tmp_path, "animegamer")) == 1


def test_slurm_passes_on_a_sigterm_that_came_before_a_phase(tmp_path: Path) -> None:
    process = slurm(tmp_path, "sleep 20", before="kill -TERM $(ps -o sid= -p $$)")
    assert process.wait(15) == 143
    assert lines(tmp_path, "scontrol") == ["scontrol requeue 42"]
