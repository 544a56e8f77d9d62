"""Command `caption-server` with a stand-in for lmdeploy: real processes, stopped and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from pipeline.captions.caption_server import SERVED
from pipeline.core.config import CaptionSettings, Config, load_config
from tests.support.builds.real_builds import wait_until_gone
from tests.support.servers.prefect_server import free_port, until
from tests.support.servers.stand_in_lmdeploy import stand_in_environment, starts_of


class Command:
    """Running command, with its output in a file."""

    def __init__(self, root: Path, environment: Path, *options: str, key: str = "") -> None:
        self.environment, self.port, self.output = environment, free_port(), root / "output"
        words = ["--card", "2x48gb", "--port", str(self.port), "--environment", str(environment), *options]
        variables = {**os.environ, "ANIMEGAMER_API_KEY": key, "HF_HOME": str(root)}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", "caption-server", *words, "--log", str(root / "log")],
                stderr=output, env=variables,
            )  # fmt: skip

    def wait_until_serving(self) -> None:
        until("the server answers", lambda: "Ctrl-C stops" in self.said(), 60)

    def said(self) -> str:
        return self.output.read_text()

    def living(self) -> list[psutil.Process]:
        pids = [start[name] for start in starts_of(self.environment) for name in ("pid", "child")]
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("interruptible")
def test_a_server_keeps_its_key_writes_the_settings_of_builds_and_ends_with_its_children(
    tmp_path: Path, number: signal.Signals
) -> None:
    file, model = tmp_path / "captions.toml", SERVED["2x48gb"]
    file.write_text("[captions]\n")
    environment = stand_in_environment(tmp_path, key="sk-secret", start_seconds=0.7)
    command = Command(tmp_path, environment, "--settings", str(file), key="sk-secret")
    command.wait_until_serving()  # so our own probe sent the key
    address = f"http://127.0.0.1:{command.port}/v1"
    assert httpx.get(f"{address}/models").status_code == 401
    (start,) = starts_of(environment)
    assert "sk-secret" not in str(start["arguments"])
    assert start["arguments"][start["arguments"].index("--tp") + 1] == "2"
    captions = CaptionSettings(endpoint=address, model=model.repository, revision=str(model.revision))
    assert load_config(file) == Config(captions=captions)
    assert len(command.living()) == 2
    command.process.send_signal(number)
    assert command.process.wait(30) == 0
    wait_until_gone("of the server", command.living)
    assert f'model = "{model.repository}"\n  revision = "{model.revision}"' in command.said()
    assert command.said().endswith("stopped\n")


@pytest.mark.slow
def test_a_kill_leaves_no_process(tmp_path: Path) -> None:
    command = Command(tmp_path, stand_in_environment(tmp_path))
    command.wait_until_serving()
    command.process.kill()
    command.process.wait()
    wait_until_gone("of the server", command.living)


def test_a_failed_start_is_reported(tmp_path: Path) -> None:
    command = Command(tmp_path, stand_in_environment(tmp_path, exit_code=7))
    assert command.process.wait(60) == 1
    assert "| ValueError: no such model" in command.said()
    assert "animegamer: the server did not start: it ended with exit code 7" in command.said()
